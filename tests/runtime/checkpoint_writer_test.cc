#include "runtime/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <atomic>
#include <latch>

#include "runtime/checkpoint_store.h"
#include "tests/check.h"
#include "tests/files.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

void never(const std::string& message) { FAIL(message); }

Checkpoint of_step(std::uint64_t step) { return {.step = step, .manifest = nlohmann::ordered_json::object()}; }

}  // namespace

TEST_CASE("checkpoint writer: a snapshot is of one moment, however the tensors change while it is written") {
  std::vector<NamedTensor> weights, state;
  for (int i = 0; i < 8; ++i) weights.push_back({fmt::format("w{}", i), at::zeros({1000 + i})});
  for (int i = 0; i < 4; ++i) state.push_back({fmt::format("s{}", i), at::zeros({30, 40}, at::kDouble).t()});
  std::atomic<int> saved = 0, torn = 0;
  CheckpointWriter writer(
      [&](const Checkpoint& checkpoint, std::optional<double> score) {
        for (int look = 0; look < 3; ++look) {  // slow, as a disk may be
          for (const auto* tensors : {&checkpoint.weights, &checkpoint.state}) {
            for (const NamedTensor& t : *tensors)
              torn += !t.tensor.eq(static_cast<double>(checkpoint.step)).all().item<bool>();
          }
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        torn += score != static_cast<double>(checkpoint.step);
        ++saved;
      },
      OnError::kStop, never);
  constexpr int kSteps = 200;
  for (int step = 1; step <= kSteps; ++step) {
    for (const auto* tensors : {&weights, &state}) {
      for (const NamedTensor& t : *tensors) t.tensor.fill_(step);
    }
    Checkpoint checkpoint = of_step(static_cast<std::uint64_t>(step));
    checkpoint.weights = weights;
    checkpoint.state = state;
    writer.save(checkpoint, step);
  }
  writer.wait();
  CHECK(saved == kSteps);
  CHECK(torn == 0);
}

TEST_CASE("checkpoint writer: save returns while the disk is busy, the next one waits, and they come in order") {
  std::latch go(1);
  std::mutex mutex;
  std::vector<std::uint64_t> steps;
  CheckpointWriter writer(
      [&](const Checkpoint& checkpoint, std::optional<double>) {
        go.wait();
        const std::lock_guard lock(mutex);
        steps.push_back(checkpoint.step);
      },
      OnError::kStop, never);
  writer.save(of_step(1), std::nullopt);
  {
    const std::lock_guard lock(mutex);
    CHECK(steps.empty());
  }
  std::jthread later([&] { go.count_down(); });
  writer.save(of_step(2), std::nullopt);
  {
    const std::lock_guard lock(mutex);
    CHECK(steps.front() == 1);
  }
  writer.save(of_step(3), std::nullopt);
  writer.wait();
  CHECK(steps == std::vector<std::uint64_t>{1, 2, 3});
  const CheckpointWriter::Times times = writer.times();
  CHECK(times.saves == 3);
  CHECK(times.failed == 0);
  CHECK(times.max_seconds >= times.mean_seconds);
  CHECK(times.wait_seconds > 0);
}

TEST_CASE("checkpoint writer: what was handed over is saved before the writer goes") {
  std::vector<std::uint64_t> steps;
  {
    CheckpointWriter writer(
        [&](const Checkpoint& checkpoint, std::optional<double>) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          steps.push_back(checkpoint.step);
        },
        OnError::kStop, never);
    writer.save(of_step(1), std::nullopt);
  }
  CHECK(steps == std::vector<std::uint64_t>{1});
}

TEST_CASE("checkpoint writer: a failed save comes out of the next call, once, or goes to the callback") {
  const auto odd_fails = [](const Checkpoint& checkpoint, std::optional<double>) {
    if (checkpoint.step % 2 == 1) throw Error(Exit::kCheckpoint, fmt::format("no step {}", checkpoint.step));
  };
  CheckpointWriter stops(odd_fails, OnError::kStop, never);
  stops.save(of_step(1), std::nullopt);
  CHECK(error_of([&] { stops.save(of_step(2), std::nullopt); }) == "6: no step 1");
  CHECK(error_of([&] { stops.save(of_step(2), std::nullopt); }) == "");
  stops.save(of_step(3), std::nullopt);
  CHECK(error_of([&] { stops.wait(); }) == "6: no step 3");
  CHECK(error_of([&] { stops.wait(); }) == "");
  CHECK(stops.times().saves == 1);
  CHECK(stops.times().failed == 2);

  std::vector<std::string> said;
  CheckpointWriter goes_on(odd_fails, OnError::kContinue, [&](const std::string& line) { said.push_back(line); });
  for (std::uint64_t step = 1; step <= 4; ++step) goes_on.save(of_step(step), std::nullopt);
  goes_on.wait();
  CHECK(said == std::vector<std::string>{"no step 1", "no step 3"});
  CHECK(goes_on.times().saves == 2);
  CHECK(goes_on.times().failed == 2);
}
