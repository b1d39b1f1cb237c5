#include "runtime/progress.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

// A node whose third firing takes `time`.
class Slow final : public Node {
 public:
  Slow(std::unique_ptr<Node> node, std::chrono::milliseconds time, std::atomic<bool>& asleep)
      : node_(std::move(node)), time_(time), asleep_(asleep) {}
  void fire(Firing& firing) override {
    if (firing.index() == 2) {
      asleep_ = true;
      std::this_thread::sleep_for(time_);
    }
    node_->fire(firing);
  }

 private:
  const std::unique_ptr<Node> node_;
  const std::chrono::milliseconds time_;
  std::atomic<bool>& asleep_;
};

// The types of tests with every node of `type` slow; `asleep` becomes true with the first that is.
Registry with_slow(const std::string& type, std::chrono::milliseconds time, std::atomic<bool>& asleep) {
  Registry registry = test_registry();
  for (NodeType& each : registry.nodes) {
    if (each.name != type) continue;
    each.make = [make = each.make, time, &asleep](const NodeContext& c) -> std::unique_ptr<Node> {
      return std::make_unique<Slow>(make(c), time, asleep);
    };
  }
  return registry;
}

std::string two_streams(const std::string& run) {
  Topology t;
  t.streams = 2;
  t.lanes = 1;
  t.run = run;
  return t.text();
}

}  // namespace

TEST_CASE("progress: durations are told in the two units that matter") {
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(2.1) == "3 s");
  CHECK(duration_text(125) == "2 min 5 s");
  CHECK(duration_text(4320) == "1 h 12 min");
  CHECK(duration_text(-1) == "0 s");
  CHECK(duration_text(1e300) == "more than 100 years");
  CHECK(duration_text(INFINITY) == "more than 100 years");
}

TEST_CASE("progress: a source that gives nothing for stall_s is named while the run goes on") {
  std::atomic<bool> asleep = false;
  Registry registry = with_slow("ar1", std::chrono::milliseconds(400), asleep);
  for (NodeType& type : registry.nodes) type.may_wait = type.may_wait || type.name == "ar1";
  const Ran ran = train(two_streams(R"("steps": 4, "stall_s": 0.1)"), {"run.threads=2"}, registry);
  CHECK(ran.exit() == 0);
  REQUIRE(!ran.said.empty());
  CHECK(ran.said.front() == "note: gen0 has given nothing for 1 s (after 2 samples); the run waits for it");
}

TEST_CASE("progress: a step that takes longer than what waits is given after a signal is finished all the same") {
  std::atomic<bool> asleep = false;
  const Registry registry = with_slow("compute", std::chrono::seconds(4), asleep);
  const Ran ran =
      train(two_streams(R"("steps": 40)"), {"run.threads=2"}, registry, [&] { return asleep ? SIGTERM : 0; });
  CHECK(ran.exit() == 11);
  const int steps = ran.report.at("steps");
  CHECK(steps >= 3);
  CHECK(steps < 40);
  CHECK(ran.reason() == fmt::format("stopped by SIGTERM after step {}", steps));
}
