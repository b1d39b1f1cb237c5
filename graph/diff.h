// What is different between two plans, for a person: in all detail, or node by node with what it means for the graph.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace lanewise {

// One line a difference between two expanded pipelines (Plan::expanded), "gen3.params.rows: \"0:300\" -> \"0:200\"", in
// the order of the first; nodes by their ids. Empty: there is none.
std::vector<std::string> plan_differences(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

// One thing that is different in a node, a model or a section; null: it is not there.
struct Difference {
  std::string what;                // "type", "instances", "inputs", "output sample", "params.lr", "steps"
  std::vector<std::string> where;  // ids of the instances that it is so in; empty: in all
  nlohmann::ordered_json before, now;
};

// A node (all its instances), a model, "run" or "evaluate". Those that are the same in both are left out.
struct PartDiff {
  enum class Kind { kAdded, kRemoved, kChanged } kind;
  std::string section;  // "source", "compute", … (the role), "model", "run", "evaluate"
  std::string id, type;
  std::vector<Difference> differences;  // of what changed
};

struct PlanDiff {
  std::vector<PartDiff> parts;  // nodes by role, from the sources on; then models, run, evaluate
  std::optional<std::int64_t> parameters_before, parameters_now;  // of the first lane; absent: unknown until run

  bool equal() const { return parts.empty() && parameters_before == parameters_now; }
};

PlanDiff diff_plans(const Plan& before, const Plan& now);

std::string diff_text(const PlanDiff& diff);
nlohmann::ordered_json diff_json(const PlanDiff& diff);
// Both plans as one graph, instances folded: what was added in green, removed in red, changed in orange.
std::string diff_dot(const Plan& before, const Plan& now, const PlanDiff& diff);

}  // namespace lanewise
