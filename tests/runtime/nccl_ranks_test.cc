// The reduction between GPUs, emulated ones, against a fake NCCL that has the real one's interface and rules, on host
// memory: what it adds up, that it keeps the rules, and that every fault ends it in time. Not verified on a GPU.
#include "runtime/devices/device_reduction.h"

#include <cstdlib>
#include <numeric>
#include <thread>

#include "runtime/devices/emulated.h"
#include "runtime/tensors.h"
#include "tests/check.h"
#include "tests/runtime/buckets.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_nccl.h"
#include "tests/runtime/models.h"
#include "tests/runtime/processes.h"

using namespace lanewise;
using std::chrono::milliseconds;

namespace {

// The library that emulated GPUs reduce through, and its controls.
class Fake : public Nccl {
  const EmulatedGpus gpus_;
};

// Between as many emulated GPUs as the replicas have domains.
class Reduction {
 public:
  Reduction(World& world, Replicas& replicas, const std::string& mode, bool accumulates = false,
            milliseconds timeout = milliseconds(20000), std::int64_t part_bytes = kPartBytes)
      : accelerator_(make_emulated_accelerator()),
        reduction_(world, replicas, *accelerator_, numbered(replicas.domain_count()),
                   {.mode = mode, .accumulates = accumulates, .peer_timeout = timeout, .part_bytes = part_bytes}) {}
  DeviceReduction* operator->() { return &reduction_; }
  DeviceReduction& operator*() { return reduction_; }

 private:
  static std::vector<int> numbered(int count) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const std::unique_ptr<Accelerator> accelerator_;
  DeviceReduction reduction_;
};

// Lanes of several parameters each, with random gradients in a queue of its own; reduced in parts of at least so many
// bytes, or as a whole.
class InParts {
 public:
  InParts(World& world, int lanes, bool per_device, std::int64_t part_bytes, bool accumulates = false,
          milliseconds timeout = milliseconds(20000))
      : replicas(
            [] {
              return make("mlp", {{"hidden", {24, 16}}}, {7}, {1});
            },
            "net",
            {.domains = domains(per_device, lanes_of(lanes, world.rank(), world.size()).count()),
             .lanes = lanes,
             .streams = 2 * lanes,
             .own = lanes_of(lanes, world.rank(), world.size())}),
        reduction(world, replicas, "deterministic", accumulates, timeout, part_bytes) {
    const auto accelerator = make_emulated_accelerator();
    for (int lane = 0; lane < replicas.lane_count(); ++lane) {
      queues.push_back(accelerator->make_queue(0));
      points.emplace_back();
      for (std::size_t part = 0; part < reduction->parts().size(); ++part)
        points[lane].push_back(queues[lane]->make_point());
    }
  }

  // `bad`: a lane, of all, whose gradient of the last parameter is NaN. What came of the round, and its bits.
  std::string round(std::uint64_t number, RoundOfStep step = {}, int bad = -1) {
    step.number = number;
    for (int i = 0; i < replicas.lane_count(); ++i) {
      const int lane = replicas.first_lane() + i;
      queues[i]->run([this, i, lane, number, bad] {
        const BucketLayout& layout = replicas.layout();
        const at::Tensor values = at::cos(at::arange(layout.size(), at::kFloat) * (1 + lane) + 0.1 * (1 + number));
        const std::vector<BucketPart>& parts = reduction->parts();
        for (int part = 0; part < static_cast<int>(parts.size()); ++part) {
          std::this_thread::sleep_for(std::chrono::microseconds(37 * (lane + number) % 200));
          const auto fill = [&](std::int64_t begin, std::int64_t end) {
            replicas.bucket(lane).narrow(0, begin, end - begin).copy_(values.narrow(0, begin, end - begin));
          };
          fill(parts[part].begin, parts[part].end);
          if (lane == bad && part == 0) replicas.bucket(lane)[layout.offsets.back()] = NAN;
          if (part + 1 == static_cast<int>(parts.size())) break;
          queues[i]->reach(*points[i][part], gradients_of(parts[part], replicas.bucket(lane)));
          reduction->hand_over(lane, part, number, *points[i][part]);
        }
        replicas.bucket(lane).narrow(0, layout.parameters, layout.tail()).zero_();
        for (const int stream : {2 * lane, 2 * lane + 1}) replicas.bucket(lane)[layout.weight_at(stream)] = 1;
      });
    }
    for (const auto& queue : queues) wait_for_all(*queue, {"a lane"});
    if (reduction->parts().size() > 1) reduction->wait_for_parts();
    reduction->issue(step);
    const RoundOutcome outcome = reduction->outcome();
    reduction->wait();
    std::string text = fmt::format("{} {} {} ", outcome.n, outcome.norm, reduction->holds(0)[0].item<float>());
    for (int d = 0; d < replicas.domain_count(); ++d) text += raw_bytes(replicas.reduced(d).contiguous());
    return text;
  }

  Replicas replicas;
  Reduction reduction;
  std::vector<std::vector<std::unique_ptr<QueuePoint>>> points;  // by lane and part
  std::vector<std::unique_ptr<DeviceQueue>> queues;              // last: their work uses the others
};

std::string bits_of(Replicas& r, int domain) { return std::string(raw_bytes(r.reduced(domain).contiguous())); }

// Of eight ranks in one process, after reducing `rounds` rounds; "" when all goes well.
std::string failure_of(int rounds, milliseconds timeout) {
  World alone;
  Replicas r = filled(8, at::kFloat, 20, true);
  return error_of([&] {
    Reduction communicator(alone, r, "deterministic", false, timeout);
    for (int round = 0; round < rounds; ++round) communicator->reduce(r, {.number = static_cast<std::uint64_t>(round)});
  });
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("nccl_conformance_8_ranks: reference gives the local communicator's bits, in one process or several") {
  for (const int processes : {1, 2, 3}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const int rounds : {1, 3}) {
        CAPTURE(processes);
        CAPTURE(rounds);
        Fake fake;
        fake.set_delay(7, 200);
        const Right right = right_sum(8, dtype, 255, rounds);
        const std::vector<std::string> wrong = in_processes(processes, [&](World& world) -> std::string {
          const LaneRange own = lanes_of(8, world.rank(), world.size());
          Replicas r = filled(8, dtype, 255, true, own);
          Reduction communicator(world, r, "reference", rounds > 1);
          return wrong_after(*communicator, r, right, rounds);
        });
        for (const std::string& text : wrong) CHECK(text == "");
        CHECK(fake.violations() == "");
        CHECK(fake.live() == "");
      }
    }
  }
}

TEST_CASE("nccl_conformance_8_ranks: ten thousand rounds with random delays give all ranks the same bits") {
  Fake fake;
  fake.set_delay(11, 20);
  World alone;
  Replicas r = filled(8, at::kFloat, 20, true);
  const Right right = right_sum(8, at::kFloat, 20, 1);
  const at::Tensor want = at::tensor(right.values, at::kDouble);
  {
    Reduction communicator(alone, r, "deterministic");
    communicator->reduce(r);
    const std::string first = bits_of(r, 0);
    CHECK(((r.reduced(0).to(at::kDouble) - want).norm() / want.norm()).item<double>() < 1e-6);
    int other = 0;
    for (int round = 1; round < 10000; ++round) {
      for (int d = 0; d < 8; ++d) r.reduced(d).zero_();
      communicator->reduce(r, {.number = static_cast<std::uint64_t>(round)});
      for (int d = 0; d < 8; ++d) other += bits_of(r, d) == first ? 0 : 1;
    }
    CHECK(other == 0);
  }
  CHECK(fake.violations() == "");
  CHECK(fake.live() == "");
}

TEST_CASE(
    "nccl_conformance_8_ranks: parts have the bits of the whole, on one, two or eight GPUs, in one process or two") {
  for (const int processes : {1, 2}) {
    for (const bool per_device : {true, false}) {
      for (const bool accumulates : {false, true}) {
        CAPTURE(processes);
        CAPTURE(per_device);
        CAPTURE(accumulates);
        const auto rounds = [&](std::int64_t part_bytes, std::size_t parts) {
          Fake fake;
          fake.set_delay(5, 200);
          const std::vector<std::string> all = in_processes(processes, [&](World& world) {
            if (world.size() == 1 && !per_device) return std::string();  // one GPU alone has no NCCL
            InParts lanes(world, 8, per_device, part_bytes, accumulates);
            std::string bits;
            for (int number = 0; number < 12; ++number) {
              const RoundOfStep step{.first = !accumulates || number % 2 == 0, .last = !accumulates || number % 2 == 1};
              bits += lanes.round(number, step, number == 7 ? 5 : -1);
            }
            return lanes.reduction->parts().size() == parts ? bits : "other parts";
          });
          CHECK(fake.violations() == "");
          CHECK(fake.live() == "");
          return all;
        };
        const std::vector<std::string> whole = rounds(1 << 20, 1);
        CHECK(rounds(64, 6) == whole);
        CHECK(rounds(144, 3) == whole);
      }
    }
  }
}

TEST_CASE("nccl_faults: in a part of a round each ends in time with the part, and no later part is begun") {
  struct Fault {
    FakeNcclFault fault;
    std::int64_t value;
    const char* says;
  };
  for (const Fault& f :
       {Fault{kFakeNcclError, ncclSystemError, "in round 2, part"},
        Fault{kFakeNcclHang, 0, "in round 2, part 2 of 3: rank 0 (lane0 on cuda:0) is not done after 0.3 s"},
        Fault{kFakeNcclLaunchError, ncclUnhandledCudaError, "in round 2, part 2 of 3"},
        Fault{kFakeNcclLaterLaunchError, ncclUnhandledCudaError, "in round 2, part 2 of 3"},
        Fault{kFakeNcclCallError, ncclSystemError, "in round 2, part 2 of 3: unhandled system error"},
        Fault{kFakeNcclEndError, ncclSystemError, "in round 2, part 2 of 3: unhandled system error"}}) {
    CAPTURE(f.fault);
    Fake fake;
    fake.inject(f.fault, 3, 2 * 4 + 1, f.value);  // a round has four collectives: three parts, and the tail
    World alone;
    const auto start = std::chrono::steady_clock::now();
    const std::string error = error_of([&] {
      InParts lanes(alone, 8, true, 144, false, milliseconds(300));
      for (int number = 0; number < 5; ++number) lanes.round(number);
    });
    CHECK(seconds_since(start) < 4);
    CAPTURE(error);
    CHECK(error.starts_with("8: the reduction failed "));
    CHECK(error.find(f.says) != std::string::npos);
    CHECK(error.find("rank 3 (lane3 on cuda:3): ") != std::string::npos);
    CHECK(fake.violations() == "");
    CHECK(fake.live() == "");
  }
}

TEST_CASE("nccl_faults: each ends in time with the round, the rank and what the ranks did last, and nothing is left") {
  struct Fault {
    FakeNcclFault fault;
    std::int64_t at, value;
    const char* says;
  };
  for (const Fault& f :
       {Fault{kFakeNcclError, 5, ncclSystemError, "in round 5: rank 3"},
        Fault{kFakeNcclError, 5, ncclRemoteError, "in round 5: rank 3"},
        Fault{kFakeNcclHang, 5, 0, "is not done after 0.3 s"}, Fault{kFakeNcclLate, 5, 5000, "is not done after 0.3 s"},
        Fault{kFakeNcclLaunchError, 5, ncclUnhandledCudaError, "in round 5"},
        Fault{kFakeNcclLaterLaunchError, 5, ncclUnhandledCudaError, "in round 5"},
        Fault{kFakeNcclCallError, 5, ncclSystemError, "in round 5: unhandled system error"},
        Fault{kFakeNcclEndError, 5, ncclSystemError, "in round 5: unhandled system error"},
        Fault{kFakeNcclHang, kFakeNcclAtInit, 0, "while the ranks connect"},
        Fault{kFakeNcclError, kFakeNcclAtInit, ncclSystemError, "while the ranks connect"}}) {
    CAPTURE(f.fault);
    CAPTURE(f.at);
    Fake fake;
    fake.inject(f.fault, 3, f.at, f.value);
    const auto start = std::chrono::steady_clock::now();
    const std::string error = failure_of(10, milliseconds(300));
    CHECK(seconds_since(start) < 4);
    CAPTURE(error);
    CHECK(error.starts_with("8: the reduction failed "));
    CHECK(error.find(f.says) != std::string::npos);
    CHECK(error.find("rank 3 (lane3 on cuda:3): ") != std::string::npos);
    if (f.at == 5) CHECK(error.find("round 5") != std::string::npos);
    CHECK(fake.violations() == "");
    CHECK(fake.live() == "");
  }
}

TEST_CASE("nccl_faults: an abort that does not return keeps nobody from hearing of the failure, or from leaving") {
  Fake fake;
  fake.inject(kFakeNcclError, 3, 0, ncclSystemError);
  fake.inject(kFakeNcclLate, 3, kFakeNcclAtAbort, 4500);
  const auto start = std::chrono::steady_clock::now();
  {
    World alone;
    Replicas r = filled(8, at::kFloat, 20, true);
    Reduction communicator(alone, r, "deterministic");
    for (int again = 0; again < 2; ++again) {
      const std::string error = error_of([&] { communicator->reduce(r, {}); });
      CHECK(error.find("in round 0: rank 3 (lane3 on cuda:3): unhandled system error") != std::string::npos);
    }
    CHECK(seconds_since(start) < 2);
  }
  CHECK(seconds_since(start) < 10);
  CHECK(eventually([&] { return fake.live() == ""; }));
  CHECK(fake.violations() == "");
}

TEST_CASE(
    "nccl_faults: a rank that is late within the timeout is waited for, and a result that differs is other bits") {
  Fake fake;
  fake.inject(kFakeNcclLate, 2, 3, 200);
  CHECK(failure_of(10, milliseconds(5000)) == "");
  CHECK(fake.violations() == "");

  fake.inject(kFakeNcclCorrupt, 4, 0, 100);
  World alone;
  Replicas r = filled(8, at::kFloat, 20, true);
  Reduction(alone, r, "deterministic")->reduce(r);
  for (int d = 0; d < 8; ++d) CHECK((bits_of(r, d) == bits_of(r, 0)) == (d != 4));
}

TEST_CASE("nccl_faults: a process whose rank does not come ends the others in time") {
  Fake fake;
  const std::vector<std::string> all = in_processes(2, [&](World& world) -> std::string {
    Replicas r = filled(2, at::kFloat, 20, true, lanes_of(2, world.rank(), world.size()));
    Reduction communicator(world, r, "deterministic", false, milliseconds(300));
    communicator->reduce(r);
    std::string error;
    if (world.rank() == 0) error = error_of([&] { communicator->reduce(r, {.number = 1}); });
    world.gather("");
    return error;
  });
  CHECK(all[0].starts_with("8: the reduction failed in round 1: rank 0 (lane0 on cuda:0) waits for others"));
  CHECK(all[1] == "");
  CHECK(fake.live() == "");
}

TEST_CASE("nccl_faults: what is no NCCL, or not there, is refused by name") {
  World alone;
  Replicas r = filled(2, at::kFloat, 20, true);
  Fake fake;
  const auto refused = [&](const std::string& path) {
    ::setenv("LANEWISE_EMULATED_NCCL", path.c_str(), 1);
    return error_of([&] { Reduction(alone, r, "deterministic"); });
  };
  CHECK(refused("/nowhere/libnccl.so.2").starts_with("9: /nowhere/libnccl.so.2 does not load ("));
  CHECK(refused("libm.so.6") == "9: libm.so.6 has no ncclGetVersion; it is not NCCL");
}
