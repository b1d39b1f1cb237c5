#include "runtime/progress.h"

#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

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
  Topology t;
  t.streams = 2;
  t.lanes = 1;
  t.run = R"("steps": 4, "stall_s": 0.1)";
  // The streams' tenth of a second of silence stands for a slow simulator.
  Registry registry = test_registry();
  for (NodeType& type : registry.nodes) {
    if (type.name != "ar1") continue;
    class Slow final : public Node {
     public:
      explicit Slow(std::unique_ptr<Node> node) : node_(std::move(node)) {}
      void fire(Firing& firing) override {
        if (firing.index() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        node_->fire(firing);
      }

     private:
      const std::unique_ptr<Node> node_;
    };
    type.may_wait = true;
    type.make = [make = type.make](const NodeContext& c) -> std::unique_ptr<Node> {
      return std::make_unique<Slow>(make(c));
    };
  }
  const Ran ran = train(t.text(), {"run.threads=2"}, registry);
  CHECK(ran.exit() == 0);
  REQUIRE(!ran.said.empty());
  CHECK(ran.said.front() == "note: gen0 has given nothing for 1 s (after 2 samples); the run waits for it");
}
