#include "runtime/communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "graph/sha256.h"
#include "runtime/tensors.h"
#include "tests/check.h"
#include "tests/runtime/buckets.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/processes.h"

using namespace lanewise;

TEST_CASE("communicator: the reduced gradient is the sum in lane order in double, times 1/N, rounded once") {
  CAPTURE(kBucketSeed);
  const std::vector<std::pair<int, bool>> worlds = {{1, true}, {2, true}, {3, true}, {2, false}, {3, false}};
  for (const auto& [processes, one_host] : worlds) {
    for (const int lanes : {3, 7, 8}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        for (const int rounds : {1, 3}) {
          CAPTURE(processes);
          CAPTURE(one_host);
          CAPTURE(lanes);
          CAPTURE(rounds);
          const Right right = right_sum(lanes, dtype, 255, rounds);
          const auto reduce = [&](World& world) {
            Replicas r = filled(lanes, dtype, 255, true, lanes_of(lanes, world.rank(), world.size()));
            const auto communicator = world.communicator("reference");
            return wrong_after(*communicator, r, right, rounds);
          };
          const std::vector<std::string> wrong = in_processes(processes, reduce, std::chrono::seconds(20), one_host);
          for (const std::string& text : wrong) CHECK(text == "");
        }
      }
    }
  }
}

TEST_CASE(
    "communicator: deterministic and fast give all processes the same bits, near the reference, and the same tail") {
  const std::vector<std::pair<std::string, bool>> variants = {
      {"deterministic", true}, {"fast", true}, {"deterministic", false}, {"fast", false}};
  for (const auto& [reduction, one_host] : variants) {
    const Right right = right_sum(7, at::kFloat, 1000, 1);
    const auto reduce = [&](World& world) {
      Replicas r = filled(7, at::kFloat, 1000, false, lanes_of(7, world.rank(), world.size()));
      world.communicator(reduction)->reduce(r);
      const at::Tensor got = r.reduced(0).to(at::kDouble), want = at::tensor(right.values, at::kDouble);
      const std::int64_t tail = r.layout().parameters;
      const bool near = ((got - want).norm() / want.norm()).item<double>() < 1e-6;
      const bool exact = at::equal(got.slice(0, tail), want.slice(0, tail).to(at::kFloat).to(at::kDouble));
      return (near ? "" : "far ") + std::string(exact ? "" : "another tail ") +
             sha256_hex(raw_bytes(r.reduced(0).contiguous()));
    };
    const std::vector<std::string> all = in_processes(3, reduce, std::chrono::seconds(20), one_host);
    for (const std::string& text : all) CHECK(text == all.front());
    CHECK(all.front().size() == 64);
  }
}

TEST_CASE("communicator: weights that have come apart between processes are noticed by all, and the process is named") {
  const std::vector<std::string> all = in_processes(3, [&](World& world) {
    Replicas r = filled(3, at::kFloat, 10, false, lanes_of(3, world.rank(), world.size()));
    const auto communicator = world.communicator("reference");
    communicator->verify(r);
    if (world.rank() == 2) r.parameter(1)[0] += 1;
    return error_of([&] { communicator->verify(r); });
  });
  for (const std::string& text : all) {
    CHECK(text ==
          "9: the copies of the weights have come apart: bias of rank 2 (lane2) differs from that of rank 0 (lane0); a "
          "device or its memory has failed");
  }
}

TEST_CASE("communicator: every domain gets the same bits, whether the weights are shared or not") {
  Replicas shared = filled(8, at::kFloat, 300), own = filled(8, at::kFloat, 300, true);
  const auto communicator = make_local_communicator();
  communicator->reduce(shared);
  communicator->reduce(own);
  for (int domain = 0; domain < 8; ++domain) CHECK(at::equal(own.reduced(domain), shared.reduced(0)));
}

TEST_CASE("communicator: with N = 0 the gradient is zero and the tail is still gathered") {
  Replicas r = filled(2, at::kFloat, 10);
  for (int lane = 0; lane < 2; ++lane) {
    for (int stream = 0; stream < 4; ++stream) r.bucket(lane)[r.layout().weight_at(stream)] = 0;
  }
  CHECK(make_local_communicator()->reduce(r) == 0);
  CHECK(at::count_nonzero(r.reduced(0).narrow(0, 0, r.layout().parameters)).item<std::int64_t>() == 0);
  CHECK(r.reduced(0)[r.layout().flag_at(1, Flag::kStop)].item<float>() == 1);
  CHECK(r.reduced(0)[r.layout().loss_at(3)].item<float>() == r.bucket(1)[r.layout().loss_at(3)].item<float>());
}
