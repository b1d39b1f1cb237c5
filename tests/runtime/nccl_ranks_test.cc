// The reduction between GPUs, emulated ones, against a fake NCCL that has the real one's interface and rules, on host
// memory: what it adds up, that it keeps the rules, and that every fault ends it in time. Not verified on a GPU.
#include "runtime/devices/device_reduction.h"

#include <cstdlib>

#include "runtime/devices/emulated.h"
#include "runtime/tensors.h"
#include "tests/check.h"
#include "tests/runtime/buckets.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/fake_nccl.h"
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
            milliseconds timeout = milliseconds(20000))
      : accelerator_(make_emulated_accelerator()),
        reduction_(world, replicas, *accelerator_, std::vector<int>(static_cast<std::size_t>(replicas.domain_count())),
                   {.mode = mode, .accumulates = accumulates, .peer_timeout = timeout}) {}
  DeviceReduction* operator->() { return &reduction_; }
  DeviceReduction& operator*() { return reduction_; }

 private:
  const std::unique_ptr<Accelerator> accelerator_;
  DeviceReduction reduction_;
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

TEST_CASE("nccl_faults: each ends in time with the round, the rank and what the ranks did last, and nothing is left") {
  struct Fault {
    FakeNcclFault fault;
    std::int64_t at, value;
    const char* says;
  };
  for (const Fault& f : {Fault{kFakeNcclError, 5, ncclSystemError, "in round 5: rank 3"},
                         Fault{kFakeNcclError, 5, ncclRemoteError, "in round 5: rank 3"},
                         Fault{kFakeNcclHang, 5, 0, "waits for others for more than 0.3 s"},
                         Fault{kFakeNcclLate, 5, 5000, "waits for others for more than 0.3 s"},
                         Fault{kFakeNcclLaunchError, 5, ncclUnhandledCudaError, "in round 5"},
                         Fault{kFakeNcclLaterLaunchError, 5, ncclUnhandledCudaError, "in round 5"},
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
    CHECK(error.find("rank 3 (lane3 on): ") != std::string::npos);
    if (f.at == 5) CHECK(error.find("round 5") != std::string::npos);
    CHECK(fake.violations() == "");
    CHECK(fake.live() == "");
  }
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
  CHECK(all[0].starts_with("8: the reduction failed in round 1: rank 0 (lane0 on) waits for others"));
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
  CHECK(refused("/nowhere/libnccl.so.2").starts_with("9: NCCL does not load: /nowhere/libnccl.so.2"));
  CHECK(refused("libm.so.6") == "9: libm.so.6 has no ncclGetVersion; it is not NCCL");
}
