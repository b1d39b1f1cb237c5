// The rules that no node can tell by itself.
#include <fmt/format.h>

#include <map>

#include "graph/plan.h"
#include "nodes/builtin.h"
#include "runtime/services.h"

namespace lanewise {
namespace {

// One problem for all instances of a node, at its place in the file.
void add_once(const PlanNode& node, const std::string& rule, std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    if (problem.place.at == node.place.at) return;
  }
  problems.push_back({node.place, rule});
}

void check_parts(const Plan& plan, std::vector<Problem>& problems) {
  if (plan.with_role(Role::kCompute).empty() || plan.with_role(Role::kOptimizer).empty()) {
    return add_once(plan.nodes.front(),
                    "the pipeline trains nothing: it needs compute nodes, an allreduce and an optimizer", problems);
  }
  const auto only_one = [&](const std::string& type) {
    const PlanNode* first = nullptr;
    for (const PlanNode& node : plan.nodes) {
      if (node.type->name != type) continue;
      if (first != nullptr) {
        return add_once(node,
                        fmt::format("{} is a second {} beside {}; all lanes train one model, by one {}", node.id, type,
                                    first->id, type),
                        problems);
      }
      first = &node;
    }
  };
  only_one("allreduce");
  only_one("optimizer");
}

void check_outputs(const Plan& plan, std::vector<Problem>& problems) {
  for (const PlanNode& node : plan.nodes) {
    if (node.outputs.empty() || !node.outputs[0].empty()) continue;
    add_once(node,
             fmt::format("nobody reads the {} of {}; name it in another node's \"in\", or take it out",
                         node.type->outputs[0].name, node.id),
             problems);
  }
}

void check_streams(const Plan& plan, std::vector<Problem>& problems) {
  std::map<int, const PlanNode*> lane_of;  // by source
  for (const int lane : plan.with_role(Role::kCompute)) {
    const PlanNode& join = plan.nodes[plan.edges[plan.nodes[lane].inputs[0]].from];
    for (const int input : join.inputs) {
      const int source = source_above(plan, plan.edges[input].from);
      const auto [it, fresh] = lane_of.try_emplace(source, &plan.nodes[lane]);
      if (fresh) continue;
      return add_once(
          join,
          fmt::format("the stream {} comes into {} and into {}; a stream belongs to one lane, once: give the "
                      "input of {} a \"take\"",
                      plan.nodes[source].id, it->second->id, plan.nodes[lane].id, join.base),
          problems);
    }
  }
}

}  // namespace

void training_rules(const Plan& plan, std::vector<Problem>& problems) {
  if (plan.nodes.empty()) return;
  check_parts(plan, problems);
  check_outputs(plan, problems);
  check_streams(plan, problems);
}

}  // namespace lanewise
