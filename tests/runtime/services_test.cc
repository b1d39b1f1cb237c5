#include "runtime/services.h"

#include <ATen/ATen.h>

#include <deque>

#include "tests/check.h"

namespace lanewise {
namespace {

// A plan of bare nodes, each with the nodes it reads from by index.
class BarePlan {
 public:
  void add(const std::string& id, Role role, const std::vector<int>& inputs = {}) {
    types_.push_back({.name = to_string(role), .role = role});
    PlanNode node;
    node.id = id;
    node.type = &types_.back();
    for (const int from : inputs) {
      node.inputs.push_back(static_cast<int>(plan.edges.size()));
      plan.edges.push_back({.from = from, .to = static_cast<int>(plan.nodes.size())});
    }
    plan.nodes.push_back(node);
  }
  Plan plan;

 private:
  std::deque<NodeType> types_;
};

TEST_CASE("services: streams are numbered as lanes take them, those without a lane last") {
  BarePlan p;
  p.add("c", Role::kSource);             // 0
  p.add("b", Role::kSource);             // 1
  p.add("unused", Role::kSource);        // 2
  p.add("a", Role::kSource);             // 3
  p.add("norm", Role::kPerSample, {1});  // 4
  p.add("pair0", Role::kJoin, {3, 4});   // 5
  p.add("pair1", Role::kJoin, {0});      // 6
  p.add("lane0", Role::kCompute, {5});   // 7
  p.add("lane1", Role::kCompute, {6});   // 8
  const StreamTable streams(p.plan);
  REQUIRE(streams.size() == 4);
  CHECK((streams.name(0) == "a" && streams.name(1) == "b" && streams.name(2) == "c" && streams.name(3) == "unused"));
  CHECK(streams.index("c") == 2);
  CHECK_THROWS_WITH_AS(streams.index("norm"), "\"norm\" is no stream of the plan", Error);
  CHECK(source_above(p.plan, 4) == 1);
  CHECK(source_above(p.plan, 3) == 3);
}

TEST_CASE("services: units undo the normalisation of a stream, the last node first") {
  BarePlan p;
  p.add("gen0", Role::kSource);
  p.add("gen1", Role::kSource);
  p.add("norm0", Role::kPerSample, {0});
  p.add("again0", Role::kPerSample, {2});
  p.add("pair", Role::kJoin, {3, 1});
  p.add("lane", Role::kCompute, {4});
  Normalization table;
  table.set("norm0", {{}, {}, {10, 0}, {2, 3}});
  table.set("again0", {{}, {}, {1, 5}, {4, 1}});
  const StreamTable streams(p.plan);
  const Units units(p.plan, streams, table);
  CHECK(units.normalized(0));
  CHECK_FALSE(units.normalized(1));
  // y' = ((y - 10) / 2 - 1) / 4 in the first column: 0.5 comes from 16. y' = y / 3 - 5 in the second: 1 comes from 18.
  CHECK(at::equal(units.original(0, at::tensor({0.5, 1.0}, at::kDouble)), at::tensor({16.0, 18.0}, at::kDouble)));
  const at::Tensor same = at::tensor({0.5f});
  CHECK(at::equal(units.original(1, same), same));
}

}  // namespace
}  // namespace lanewise
