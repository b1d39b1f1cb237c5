// What can be tried of NCCL on a machine with one GPU: its one rank, ranks that do not come, work that does not end. A
// real GPU and the real NCCL with LANEWISE_TEST_GPU set (not verified on a GPU), else an emulated one and the fake.
#include "runtime/devices/device_reduction.h"
#include "runtime/nccl/clique.h"
#include "tests/check.h"
#include "tests/runtime/buckets.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/real_gpu.h"

using namespace lanewise;
using std::chrono::milliseconds;

namespace {

// One rank, of one or more, on one GPU; all that is done is done by this thread.
struct OneRank {
  explicit OneRank(int all)
      : gpu(one_gpu()),
        queue(gpu->make_queue(0)),
        nccl(gpu->nccl()),
        streams(gpu->streams({queue.get()}, 0)),
        place{.first = 0,
              .count = 1,
              .all = all,
              .unique_id = NcclClique::make_unique_id(nccl),
              .names = {"rank 0 (lane0)"},
              .timeout = milliseconds(500)} {}

  const EmulatedGpus emulated;
  const std::unique_ptr<Accelerator> gpu;
  const std::unique_ptr<DeviceQueue> queue;
  const NcclLibrary nccl;
  const std::unique_ptr<DeviceStreams> streams;
  const NcclPlace place;
};

double seconds_of(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("nccl_one_rank: parts that are handed over have the bits of the whole, and of no NCCL") {
  const EmulatedGpus emulated;
  constexpr int kLanes = 3;
  const Right right = right_sum(kLanes, at::kFloat, 70000, 1);
  for (const bool through_nccl : {false, true}) {
    for (const std::int64_t part_bytes : {std::int64_t{1}, kPartBytes}) {
      CAPTURE(through_nccl);
      CAPTURE(part_bytes);
      const auto gpu = one_gpu();
      Replicas replicas = filled(kLanes, at::kFloat, 70000, false, std::nullopt, 0, {gpu->device(0)});
      gpu->settle();
      World alone;
      DeviceReduction reduction(alone, replicas, *gpu, {0}, {.through_nccl = through_nccl, .part_bytes = part_bytes});
      const auto lanes = gpu->make_queue(0);
      const auto point = lanes->make_point();
      CHECK(reduction.parts().size() == (through_nccl && part_bytes == 1 ? 2 : 1));
      if (reduction.parts().size() == 2) {
        lanes->run([&] {
          lanes->reach(*point, gradients_of(reduction.parts()[0], replicas.bucket(0)));
          for (int lane = 0; lane < kLanes; ++lane) reduction.hand_over(lane, 0, 0, *point);
        });
        wait_for_all(*lanes, {"the lanes"});
        reduction.wait_for_parts();
      }
      CHECK(reduction.reduce(replicas) == right.n);
      const at::Tensor want = at::tensor(right.values, at::kDouble).to(at::kFloat);
      // Through NCCL, lanes are added up, rounded, and then divided.
      const at::Tensor apart = (replicas.reduced(0).cpu() - want).abs();
      CHECK((apart <= want.abs() * (through_nccl ? 2e-7 : 0)).all().item<bool>());
    }
  }
}

TEST_CASE("nccl_one_rank: a rank that never comes ends the wait in time, with everything aborted") {
  OneRank rank(2);
  std::string error;
  CHECK(seconds_of([&] { error = error_of([&] { NcclClique(rank.nccl, *rank.streams, rank.place).connect(); }); }) < 20);
  CAPTURE(error);
  CHECK(error.starts_with("8: the reduction failed while the ranks connect: "));
  CHECK(error.find("  rank 0 (lane0): connects, round 0") != std::string::npos);
}

TEST_CASE("nccl_one_rank: a collective whose GPU does not come to it ends by the deadline, and is aborted") {
  OneRank rank(1);
  const at::Tensor buffer = at::ones({1000}, at::TensorOptions(at::kFloat).device(rank.gpu->device(0)));
  rank.gpu->settle();
  std::string error;
  CHECK(seconds_of([&] {
          NcclClique clique(rank.nccl, *rank.streams, rank.place);
          clique.connect();
          NcclSum sum{.round = {.number = 0}, .buffers = {buffer.data_ptr()}, .pieces = {{0, 1000}}};
          clique.launch(sum);
          rank.streams->launched();
          clique.finish(sum.round);
          keep_busy(*rank.queue, rank.gpu->device(0));
          sum.round = {.number = 1, .part = 1, .parts = 3};
          clique.launch(sum);
          rank.streams->launched();
          error = error_of([&] { clique.finish(sum.round); });
        }) < 20);
  CAPTURE(error);
  CHECK(error.starts_with("8: the reduction failed in round 1, part 2 of 3: rank 0 (lane0) is not done after"));
  CHECK(error.find("  rank 0 (lane0): launched, round 1, part 2 of 3") != std::string::npos);
}

TEST_CASE("nccl_one_rank: a GPU that does not end its work is waited for until the deadline") {
  const EmulatedGpus emulated;
  const auto gpu = one_gpu();
  const auto queue = gpu->make_queue(0);
  keep_busy(*queue, gpu->device(0));
  CHECK(error_of([&] {
          wait_for_all(*queue, {"lane3 on cuda:0", milliseconds(300)});
        }) ==
        "9: lane3 on cuda:0 has not done its work in 0.3 s: the GPU hangs, or is slower than --peer-timeout allows");
  wait_for_all(*queue, {"lane3 on cuda:0"});
}
