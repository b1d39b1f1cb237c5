// Builds a Plan from a Spec and its wiring: reads every parameter, lets each node type work out its shapes, and seals
// the result with its digest.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/document.h"
#include "graph/expand.h"
#include "graph/plan.h"
#include "graph/read.h"
#include "graph/registry.h"

namespace lanewise {

// "run", "evaluate" and "models", read and checked.
struct Settings {
  RunSettings run;
  std::optional<EvaluateSettings> evaluate;
  std::vector<PlanModel> models;
  bool models_sound = true;
  nlohmann::ordered_json run_written, models_written;
};
Settings read_settings(const Spec& spec, const Document& document, const Registry& registry,
                       std::vector<Problem>& problems);

// A plan in the making. Parameters as written and whether anything is wrong, by node.
struct Draft {
  Plan plan;
  std::vector<nlohmann::ordered_json> written;
  std::vector<bool> broken;
};

// Every node with its parameters. `evaluating`: with the changes of evaluate.set, and the end rule mask.
Draft draft(const Spec& spec, const Settings& settings, const Wiring& wiring, bool evaluating, const Document& document,
            std::vector<Problem>& problems);

// Lets every node's type infer, in order; nodes that are broken, or fed by one that is, are passed over.
void infer(Draft& draft, std::vector<Problem>& problems);

// Fills in what the plan is as text, and its digest.
Plan seal(Draft draft, const Spec& spec, const Settings& settings);

}  // namespace lanewise
