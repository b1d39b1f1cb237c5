// Where the values of a pipeline came from: its default, then every place that wrote it, the last one in force.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/registry.h"
#include "graph/spec.h"

namespace lanewise {

// One value and what came before it.
struct Explained {
  struct Step {
    std::string where;             // "default", "mine.json:4:12" or "command line"
    nlohmann::ordered_json value;  // null: taken out
    std::string what;              // the pointer or the option; "" of a default
  };
  std::vector<std::string> names;  // "lane3.loss", or of several instances with the same steps
  std::vector<Step> steps;         // never empty
  bool evaluating = false;         // what holds in evaluations, where that is something else

  const nlohmann::ordered_json& value() const { return steps.back().value; }
};

// Explains "lane3.loss", "lane.loss" and "gen[0..7].seed" (all instances, those alike together), "gen.type",
// "lane.device", "run.steps", "models.net.hidden", "evaluate.every" or "name". Throws PipelineError as plan_pipeline()
// does, and Error(kCommandLine) for a key that names nothing.
std::vector<Explained> explain(const std::string& text, const std::string& file, const Registry& registry,
                               const PlanOptions& options, const std::string& key);

// Every key that explain() takes for a pipeline, instances left out.
std::vector<std::string> keys_of(const std::string& text, const std::string& file, const Registry& registry,
                                 const PlanOptions& options);

}  // namespace lanewise
