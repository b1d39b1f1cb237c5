#include "graph/cut.h"

#include <algorithm>

namespace lanewise {
namespace {

// Adds everything that the node gets packets from, and itself. Feedback edges are another matter.
void mark_above(const Plan& plan, int node, std::vector<bool>& marked) {
  if (marked[node]) return;
  marked[node] = true;
  for (const int edge : plan.nodes[node].inputs) {
    if (plan.edges[edge].initial == 0) mark_above(plan, plan.edges[edge].from, marked);
  }
}

std::vector<bool> kept_nodes(const Plan& plan, LaneRange lanes, bool first) {
  const std::vector<int> compute = plan.with_role(Role::kCompute);
  std::vector<bool> of_lanes(plan.nodes.size()), kept(plan.nodes.size());
  for (int lane = 0; lane < static_cast<int>(compute.size()); ++lane) {
    mark_above(plan, compute[lane], of_lanes);
    if (lanes.holds(lane)) mark_above(plan, compute[lane], kept);
  }
  std::vector<bool> fed_by_lanes = of_lanes;  // also what takes samples or predictions from there
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    if (of_lanes[i]) continue;
    const auto any_of = [&](const std::vector<bool>& set) {
      return std::ranges::any_of(node.inputs,
                                 [&](int e) { return plan.edges[e].initial == 0 && set[plan.edges[e].from]; });
    };
    fed_by_lanes[i] = any_of(fed_by_lanes) && node.type->role != Role::kReduce;
    kept[i] = any_of(kept) && (first || fed_by_lanes[i] || node.type->role != Role::kSink);
  }
  return kept;
}

}  // namespace

LaneRange lanes_of(int lanes, int rank, int processes) {
  const auto at = [&](int r) { return static_cast<int>(static_cast<std::int64_t>(r) * lanes / processes); };
  return {at(rank), at(rank + 1)};
}

Plan cut(const Plan& plan, LaneRange lanes, bool first) {
  const std::vector<bool> kept = kept_nodes(plan, lanes, first);
  Plan part = plan;
  part.nodes.clear();
  part.edges.clear();
  std::vector<int> node_at(plan.nodes.size(), -1), edge_at(plan.edges.size(), -1);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (!kept[i]) continue;
    node_at[i] = static_cast<int>(part.nodes.size());
    part.nodes.push_back(plan.nodes[i]);
  }
  for (std::size_t e = 0; e < plan.edges.size(); ++e) {
    PlanEdge edge = plan.edges[e];
    edge.from = node_at[edge.from];
    edge.to = node_at[edge.to];
    if (edge.from < 0 || edge.to < 0) continue;
    edge_at[e] = static_cast<int>(part.edges.size());
    part.edges.push_back(edge);
  }
  const auto renumber = [&](std::vector<int>& edges) {
    std::erase_if(edges, [&](int e) { return edge_at[e] < 0; });
    for (int& e : edges) e = edge_at[e];
  };
  for (PlanNode& node : part.nodes) {
    renumber(node.inputs);
    for (std::vector<int>& port : node.outputs) renumber(port);
  }
  return part;
}

}  // namespace lanewise
