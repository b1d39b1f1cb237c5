#include "graph/fuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/cut.h"
#include "graph/text.h"

namespace lanewise {
namespace {

constexpr int kPrediction = 1;                      // output port of a lane
constexpr int kGroupsOfHost = 2, kGroupsOfGpu = 1;  // of `auto`

// Lanes that become one, neighbours in Plan::with_role(kCompute).
struct LaneGroup {
  std::vector<std::string> ids;
  std::string id;  // "lane[0..3]"
};

// "" or why a run leaves all lanes as they are.
std::string reason_of_run(const Plan& plan) {
  if (plan.run.fuse == "off") return "run.fuse is off";
  if (plan.run.fuse == "auto" && plan.reduction() == "reference") {
    return "run.fuse auto leaves them apart under the reduction reference; run.fuse 2 makes two batches of them";
  }
  return "";
}

// What lanes must have in common; where one reads predictions, all of them do.
struct Kind {
  std::string base, device;
  nlohmann::json params, evaluation_params;
  std::optional<Shape> x, y;  // of its samples
  bool integer_target = false;
  std::vector<std::pair<int, int>> readers, evaluation_readers;

  bool operator==(const Kind&) const = default;
};

std::vector<std::pair<int, int>> readers_of(const Plan& plan, const PlanNode& lane) {
  std::vector<std::pair<int, int>> readers;
  for (const int edge : lane.outputs[kPrediction]) readers.emplace_back(plan.edges[edge].to, plan.edges[edge].to_port);
  return readers;
}

const Signature& batch_of(const Plan& plan, const PlanNode& lane) {
  const PlanEdge& edge = plan.edges[lane.inputs[0]];
  return plan.nodes[edge.from].signatures[edge.from_port];
}

Kind kind_of(const Plan& train, const std::optional<Plan>& evaluate, const PlanNode& lane) {
  const bool one_memory = !lane.gpu() && train.run.weights == "shared";
  const Signature& batch = batch_of(train, lane);
  Kind kind{.base = lane.base,
            .device = one_memory ? "host" : lane.device,
            .params = lane.params,
            .evaluation_params = nullptr,
            .x = batch.x,
            .y = batch.y,
            .integer_target = batch.integer_target,
            .readers = readers_of(train, lane),
            .evaluation_readers = {}};
  if (!evaluate) return kind;
  if (const PlanNode* const same = evaluate->find(lane.id)) {
    kind.evaluation_params = same->params;
    kind.evaluation_readers = readers_of(*evaluate, *same);
  }
  return kind;
}

// Runs of neighbours that may be fused, each shared out among as many groups as its memory has.
std::vector<LaneGroup> groups_of(const Plan& train, const std::optional<Plan>& evaluate, int hosts) {
  const std::vector<int> lanes = train.with_role(Role::kCompute);
  std::set<int> first_of_host;
  for (int h = 0; h < hosts; ++h) first_of_host.insert(lanes_of(static_cast<int>(lanes.size()), h, hosts).begin);
  std::vector<LaneGroup> groups;
  std::vector<const PlanNode*> run;
  Kind kind;
  const auto close = [&] {
    if (run.size() > 1) {
      const int asked = train.run.fuse == "auto" ? (run[0]->gpu() ? kGroupsOfGpu : kGroupsOfHost)
                                                 : static_cast<int>(train.run.fuse.get<std::int64_t>());
      const int count = static_cast<int>(run.size());
      for (int g = 0, of = std::min(asked, count); g < of; ++g) {
        const LaneRange range = lanes_of(count, g, of);
        if (range.count() < 2) continue;
        LaneGroup& group = groups.emplace_back();
        for (int i = range.begin; i < range.end; ++i) group.ids.push_back(run[i]->id);
        group.id = fmt::format("{}[{}..{}]", run[0]->base, run[range.begin]->instance, run[range.end - 1]->instance);
      }
    }
    run.clear();
  };
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const PlanNode& lane = train.nodes[lanes[i]];
    Kind own = kind_of(train, evaluate, lane);
    if (!run.empty() && (own != kind || first_of_host.contains(static_cast<int>(i)))) close();
    if (!lane.alone.empty()) {
      close();
      continue;
    }
    kind = std::move(own);
    run.push_back(&lane);
  }
  close();
  return groups;
}

// A plan with the lanes of each group as one.
class Fuser {
 public:
  Fuser(const Plan& plan, const std::vector<LaneGroup>& groups, const NodeType& merge)
      : plan_(plan), merge_(merge), new_(plan.nodes.size()), merge_of_(plan.nodes.size(), -1) {
    for (const LaneGroup& group : groups) {
      for (const std::string& id : group.ids) group_of_[id] = &group;
    }
  }

  Plan fuse() {
    Plan fused = plan_;
    fused.nodes.clear();
    fused.edges.clear();
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) add_node(fused, static_cast<int>(i));
    for (const PlanEdge& edge : plan_.edges) add_edge(fused, edge);
    std::ranges::stable_sort(fused.edges, {}, [](const PlanEdge& e) { return std::pair(e.to, e.to_port); });
    for (int e = 0; e < static_cast<int>(fused.edges.size()); ++e) {
      const PlanEdge& edge = fused.edges[e];
      fused.nodes[edge.to].inputs.push_back(e);
      fused.nodes[edge.from].outputs[edge.from_port].push_back(e);
    }
    return fused;
  }

 private:
  const LaneGroup* group_of(int node) const {
    const auto it = group_of_.find(plan_.nodes[node].id);
    return it == group_of_.end() ? nullptr : it->second;
  }
  bool leads(int node) const { return group_of(node)->ids.front() == plan_.nodes[node].id; }

  static PlanNode unwired(PlanNode node) {
    node.inputs.clear();
    for (std::vector<int>& port : node.outputs) port.clear();
    return node;
  }

  void add_node(Plan& fused, int at) {
    const PlanNode& node = plan_.nodes[at];
    const LaneGroup* const group = group_of(at);
    if (group != nullptr && !leads(at)) {
      new_[at] = static_cast<int>(fused.nodes.size()) - 1;  // instances of a node lie side by side
      merge_of_[at] = new_[at] - 1;
      PlanNode &lane = fused.nodes[new_[at]], &merge = fused.nodes[merge_of_[at]];
      const Signature& batch = batch_of(plan_, node);
      lane.fused.push_back({node.id, node.device, batch.streams});
      merge.signatures[0].append(batch);
      for (std::size_t port = 0; port < lane.signatures.size(); ++port)
        lane.signatures[port].append(node.signatures[port]);
      lane.facts["lanes"] = lane.fused.size();
      return;
    }
    if (group != nullptr) {
      PlanNode& merge = fused.nodes.emplace_back();
      merge.id = group->id + ":batch";
      merge.base = node.base + ":batch";
      merge.instance = node.instance;
      merge.type = &merge_;
      merge.params = nlohmann::json::object();
      merge.outputs.resize(1);
      merge.signatures = {batch_of(plan_, node)};
      merge.place = node.place;
      merge_of_[at] = static_cast<int>(fused.nodes.size()) - 1;
      fused.edges.push_back({merge_of_[at], 0, merge_of_[at] + 1, 0, /*capacity=*/1, 0});
    }
    new_[at] = static_cast<int>(fused.nodes.size());
    PlanNode& copy = fused.nodes.emplace_back(unwired(node));
    if (group == nullptr) return;
    copy.id = group->id;
    copy.fused = {{node.id, node.device, batch_of(plan_, node).streams}};
  }

  void add_edge(Plan& fused, PlanEdge edge) {
    const bool to_group = group_of(edge.to) != nullptr, batch = to_group && edge.initial == 0;
    if (to_group && !batch && !leads(edge.to)) return;
    if (group_of(edge.from) != nullptr && !leads(edge.from)) return;
    edge.to = batch ? merge_of_[edge.to] : new_[edge.to];
    edge.from = new_[edge.from];
    fused.edges.push_back(edge);
  }

  const Plan& plan_;
  const NodeType& merge_;
  std::unordered_map<std::string, const LaneGroup*> group_of_;
  std::vector<int> new_, merge_of_;  // by old node
};

std::string listed_groups(const std::vector<LaneGroup>& groups) {
  std::vector<std::string> ids;
  for (const LaneGroup& group : groups) ids.push_back(group.id);
  return listed(ids);
}

}  // namespace

void fuse(Plan& train, std::optional<Plan>& evaluate, const NodeType* merge, int hosts) {
  const std::vector<int> lanes = train.with_role(Role::kCompute);
  if (lanes.size() < 2 || merge == nullptr) return;
  std::string why = reason_of_run(train);
  const auto is_unknown = [&](int lane) {
    const Signature& batch = batch_of(train, train.nodes[lane]);
    return !batch.x || !batch.y;
  };
  if (why.empty() && std::ranges::any_of(lanes, is_unknown)) {
    train.fusion = "which lanes are fused is unknown until run, as the shapes of their samples are";
    return;
  }
  const std::vector<LaneGroup> groups = why.empty() ? groups_of(train, evaluate, hosts) : std::vector<LaneGroup>();
  std::size_t in_groups = 0;
  for (const LaneGroup& group : groups) in_groups += group.ids.size();
  for (const int lane : lanes) {
    if (why.empty() && !train.nodes[lane].alone.empty())
      why = fmt::format("{}: {}", train.nodes[lane].id, train.nodes[lane].alone);
  }
  if (why.empty())
    why = "they are batches of their own, so many were asked for, or no neighbour is alike and shares their weights";
  if (groups.empty()) {
    train.fusion = "lanes are not fused: " + why;
    return;
  }
  train.fusion = "fused: " + listed_groups(groups);
  if (in_groups < lanes.size()) train.fusion += "; the others are not: " + why;
  if (evaluate) evaluate = Fuser(*evaluate, groups, *merge).fuse();
  train = Fuser(train, groups, *merge).fuse();
}

std::vector<int> joins_of_lanes(const Plan& plan) {
  std::vector<int> joins;
  for (const int lane : plan.with_role(Role::kCompute)) {
    const int join = plan.edges[plan.nodes[lane].inputs[0]].from;
    if (plan.nodes[lane].fused.empty()) {
      joins.push_back(join);
    } else {
      for (const int edge : plan.nodes[join].inputs) joins.push_back(plan.edges[edge].from);
    }
  }
  return joins;
}

}  // namespace lanewise
