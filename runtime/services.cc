#include "runtime/services.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace lanewise {
namespace {

// Appends the sources above a node in the order in which its rows take them.
void collect_sources(const Plan& plan, int node, std::vector<std::string>& names) {
  const PlanNode& here = plan.nodes[node];
  if (here.type->role == Role::kSource) {
    if (std::ranges::find(names, here.id) == names.end()) names.push_back(here.id);
    return;
  }
  for (const int edge : here.inputs) {
    if (plan.edges[edge].initial == 0) collect_sources(plan, plan.edges[edge].from, names);
  }
}

// Whether a normalize node's statistics change from sample to sample.
bool learns(const PlanNode& node) { return node.params.is_object() && node.params.value("mode", "") == "running"; }

}  // namespace

int source_above(const Plan& plan, int node) {
  while (!plan.nodes[node].inputs.empty()) node = plan.edges[plan.nodes[node].inputs[0]].from;
  return node;
}

// Sources that no lane takes come last.
StreamTable::StreamTable(const Plan& plan) {
  for (const int lane : plan.with_role(Role::kCompute)) collect_sources(plan, lane, names_);
  for (const int source : plan.with_role(Role::kSource)) collect_sources(plan, source, names_);
}

int StreamTable::index(const std::string& source_id) const {
  const auto it = std::ranges::find(names_, source_id);
  if (it == names_.end()) throw Error(Exit::kInternal, fmt::format("\"{}\" is no stream of the plan", source_id));
  return static_cast<int>(it - names_.begin());
}

const Statistics* Normalization::find(const std::string& node_id) const {
  const auto it = table_.find(node_id);
  return it == table_.end() ? nullptr : &it->second;
}

// Of several normalize nodes below each other, the last is undone first: with y = (y0 - m) / s twice, y0 = y·s2·s1 +
// m2·s1 + m1.
Units::Units(const Plan& plan, const StreamTable& streams, const Normalization& normalization)
    : scale_(static_cast<std::size_t>(streams.size())), mean_(static_cast<std::size_t>(streams.size())) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const Statistics* found = normalization.find(plan.nodes[i].id);
    if (found == nullptr || found->y_mean.empty()) continue;
    if (!plan.evaluating && learns(plan.nodes[i])) continue;  // its samples were scaled by what it knew at their time
    const int stream = streams.index(plan.nodes[source_above(plan, static_cast<int>(i))].id);
    std::vector<double>& scale = scale_[stream];
    std::vector<double>& mean = mean_[stream];
    scale.resize(found->y_scale.size(), 1);
    mean.resize(found->y_mean.size(), 0);
    for (std::size_t c = 0; c < scale.size(); ++c) {
      mean[c] += found->y_mean[c] * scale[c];
      scale[c] *= found->y_scale[c];
    }
  }
}

at::Tensor Units::original(int stream, const at::Tensor& y) const {
  if (!normalized(stream)) return y;
  return (y.to(at::kDouble) * at::tensor(scale_[stream], at::kDouble) + at::tensor(mean_[stream], at::kDouble))
      .to(y.scalar_type());
}

}  // namespace lanewise
