#include "graph/cut.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "graph/spec.h"
#include "tests/graph/test_registry.h"

using namespace lanewise;

namespace {

// Eight lanes of two sources each, a clip, and taps behind the optimizer and the lanes.
const char* const kFile = R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "gen", "repeat": 16, "type": "count" },
    { "id": "pair", "repeat": 8, "type": "pair", "in": [ { "from": "gen", "take": 2 } ] },
    { "id": "lane", "repeat": 8, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "cpu:*", "params": { "model": "net" } },
    { "id": "seen", "type": "log", "in": [ { "from": "lane.prediction" } ] },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
    { "id": "clip", "type": "clip", "in": [ { "from": "reduce" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "clip" } ] } ],
  "run": { "steps": 5 }, "evaluate": {} })";

std::string ids(const Plan& plan) {
  std::string text;
  for (const PlanNode& node : plan.nodes) text += (text.empty() ? "" : " ") + node.id;
  return text;
}

// Every edge is known by both its ends, in the ports that it had.
void check_wiring(const Plan& part, const Plan& whole) {
  for (std::size_t i = 0; i < part.nodes.size(); ++i) {
    const PlanNode& node = part.nodes[i];
    const PlanNode& same = *whole.find(node.id);
    CHECK(node.outputs.size() == same.outputs.size());
    for (const int e : node.inputs) CHECK(part.edges[e].to == static_cast<int>(i));
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      for (const int e : node.outputs[port]) {
        CHECK(part.edges[e].from == static_cast<int>(i));
        CHECK(part.edges[e].from_port == static_cast<int>(port));
      }
    }
    if (node.type->role == Role::kCompute) CHECK(node.inputs.size() == same.inputs.size());
  }
}

}  // namespace

TEST_CASE("cut: lanes go to processes as neighbours, as evenly as it goes") {
  std::string text;
  for (int rank = 0; rank < 3; ++rank) {
    const LaneRange lanes = lanes_of(8, rank, 3);
    text += fmt::format("{}-{} ", lanes.begin, lanes.end);
  }
  CHECK(text == "0-2 2-5 5-8 ");
  CHECK(lanes_of(8, 0, 1).count() == 8);
}

TEST_CASE("cut: a process has its lanes, what feeds them and all that follows; taps of the optimizer are the first's") {
  const Plans plans = plan_pipeline(kFile, "f", test_registry(), {});
  const Plan first = cut(plans.train, lanes_of(8, 0, 3), true), last = cut(plans.train, lanes_of(8, 2, 3), false);
  CHECK(ids(first) == "gen0 gen1 gen2 gen3 pair0 pair1 lane0 lane1 seen reduce clip opt");
  CHECK(ids(last) == "gen10 gen11 gen12 gen13 gen14 gen15 pair5 pair6 pair7 lane5 lane6 lane7 seen reduce clip opt");
  for (const Plan* part : {&first, &last}) {
    check_wiring(*part, plans.train);
    CHECK(part->digest == plans.train.digest);
  }
  CHECK(last.find("reduce")->inputs.size() == 3);
  CHECK(last.find("opt")->outputs[0].size() == 3);
  const Plan evaluation = cut(*plans.evaluate, lanes_of(8, 1, 3), false);
  CHECK(ids(evaluation).ends_with("lane2 lane3 lane4 seen score"));
  check_wiring(evaluation, *plans.evaluate);
}
