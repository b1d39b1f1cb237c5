// The reduction of lanes on one GPU, a real or an emulated one.
#include "runtime/devices/device_reduction.h"

#include <cmath>

#include "runtime/finite.h"
#include "tests/check.h"
#include "tests/runtime/buckets.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/real_gpu.h"

using namespace lanewise;

namespace {

// Lanes whose buckets are on one GPU, and their reduction.
struct OneGpu {
  OneGpu(int lanes, at::ScalarType dtype, std::int64_t width, DeviceReductionOptions options)
      : accelerator(one_gpu()),
        replicas(filled(lanes, dtype, width, false, std::nullopt, 0, {accelerator->device(0)})),
        reduction((accelerator->settle(), alone), replicas, *accelerator, {0}, options) {}

  World alone;
  std::unique_ptr<Accelerator> accelerator;
  Replicas replicas;
  DeviceReduction reduction;
};

}  // namespace

TEST_CASE(
    "device reduction: all lanes on one GPU give the local communicator's bits, without NCCL or through its one rank") {
  const EmulatedGpus nccl;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int rounds : {1, 3}) {
      CAPTURE(rounds);
      const Right right = right_sum(7, dtype, 255, rounds);
      for (const bool through_nccl : {false, true}) {
        CAPTURE(through_nccl);
        OneGpu gpu(7, dtype, 255, {.mode = "reference", .accumulates = rounds > 1, .through_nccl = through_nccl});
        CHECK(wrong_after(gpu.reduction, gpu.replicas, right, rounds) == "");
        CHECK(std::string(gpu.reduction.through()) == (through_nccl ? "nccl" : "one device"));
      }
    }
  }
}

TEST_CASE("device reduction: what is not finite, has ended or counts nothing holds the step back on the device") {
  struct Round {
    const char* what;
    bool votes;
    std::function<void(Replicas&)> spoil;
    float weights, states;  // held
  };
  const auto set = [](int lane, auto place, double value) {
    return [=](Replicas& r) { r.bucket(lane)[place(r.layout())] = value; };
  };
  const auto parameter = [](const BucketLayout&) { return std::int64_t{3}; };
  const auto flag = [](int lane, Flag which) {
    return [=](const BucketLayout& layout) { return layout.flag_at(lane, which); };
  };
  const auto everywhere = [](Flag which, double value) {
    return [=](Replicas& r) {
      for (int lane = 0; lane < 3; ++lane) r.bucket(lane)[r.layout().flag_at(lane, which)] = value;
    };
  };
  const std::vector<Round> all = {
      {"nothing", true, [](Replicas&) {}, 0, 0},
      {"a NaN", true, set(1, parameter, NAN), 1, 1},
      {"an infinity", true, set(2, parameter, INFINITY), 1, 1},
      {"a NaN that is allowed", false, set(1, parameter, NAN), 0, 0},
      {"a sum that overflows", true,
       [](Replicas& r) {
         for (int lane = 0; lane < 3; ++lane) {
           r.bucket(lane)[3] = 3e38;
           for (const int s : {2 * lane, 2 * lane + 1}) r.bucket(lane)[r.layout().weight_at(s)] = 0.1;
         }
       },
       1, 1},
      {"a lane without a batch", true, set(0, flag(0, Flag::kCut), 1), 1, 1},
      {"one stream's end", true, set(0, flag(0, Flag::kEnded), 1), 0, 0},
      {"all streams' end", true, everywhere(Flag::kEnded, 1), 1, 1},
      {"no row that counts", true,
       [](Replicas& r) {
         for (int lane = 0; lane < 3; ++lane)
           for (int s = 0; s < 6; ++s) r.bucket(lane)[r.layout().weight_at(s)] = 0;
       },
       1, 0},
  };
  for (const Round& round : all) {
    CAPTURE(round.what);
    OneGpu gpu(3, at::kFloat, 20, {.votes = round.votes});
    round.spoil(gpu.replicas);
    gpu.accelerator->settle();
    gpu.reduction.reduce(gpu.replicas, {});
    CHECK(gpu.reduction.holds(0)[0].item<float>() == round.weights);
    CHECK(gpu.reduction.holds(0)[1].item<float>() == round.states);
  }
}

TEST_CASE("device reduction: two rounds may be under way, and each tells its own outcome") {
  OneGpu gpu(3, at::kFloat, 20, {});
  DeviceReduction& reduction = gpu.reduction;
  reduction.issue({.number = 0});
  wait_for_all(reduction.queue(0), {"the reduction"});
  const double first = reduction.norm(0).item<double>();
  for (int lane = 0; lane < 3; ++lane) gpu.replicas.bucket(lane).narrow(0, 0, gpu.replicas.layout().parameters).mul_(2);
  gpu.accelerator->settle();
  reduction.issue({.number = 1});
  CHECK_THROWS(reduction.issue({.number = 2}));
  CHECK(reduction.outcome().norm == first);
  CHECK(reduction.outcome().norm == doctest::Approx(2 * first));
}

TEST_CASE("device reduction: the pass has the bits of its twin on the host, for sizes around a block's") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t width : {1, 255, 256, 1023, 1025, 300001}) {
      CAPTURE(width);
      const Right right = right_sum(3, dtype, width, 1);
      OneGpu gpu(3, dtype, width, {});
      CHECK(wrong_after(gpu.reduction, gpu.replicas, right, 1) == "");
      const double there = gpu.reduction.norm(0).item<double>();
      const double here = norm(gpu.replicas.reduced(0).cpu(), gpu.replicas.layout().parameters);
      CHECK(std::abs(there - here) <= 1e-12 * here);
    }
  }
}
