// A Spec is what the user wrote: the pipeline file's text with the position of every value, and the command line's
// changes. plan_pipeline() turns it into a Plan, or throws all its problems at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace lanewise {

// Changes from the command line, in the order given.
struct Override {
  enum class Kind { kSet, kSwap, kPlugin } kind;
  std::string text;         // "lane.loss=huber", "gen={\"type\":\"lorenz\"}", "build/libmynode.so"
  std::string folder = {};  // that relative paths in it are relative to; "": the current directory
};

struct PlanOptions {
  std::vector<Override> overrides;
  // Of each host, for cuda:* and auto:*; 0: auto:* is cpu:*, and cuda:* is planned for one a lane.
  int gpus = 0;
  int hosts = 1;      // that the lanes are spread over, as evenly as it goes, neighbours together
  int cores = 1;      // for run.threads
  bool infer = true;  // work out shapes (reads headers of data files)
  // The second plan is one to predict by: "evaluate" is of no account, and every sample gets a prediction.
  bool predict = false;
  bool load_plugins = true;  // false: plugins are told by their descriptors, whatever the registry would do
};

// What plans were made from; the same again makes the same plans.
struct PlanSource {
  std::string text, file;  // `file` with its whole path
  std::vector<Override> overrides;
  int gpus = 0, hosts = 1;  // as in PlanOptions
};

// Both plans of a pipeline: the training one, and the evaluation's where the file has "evaluate" (reduction, optimizer
// and feedback removed, a `score` node over the predictions of all lanes put in their place, end rule mask).
struct Plans {
  Plan train;
  std::optional<Plan> evaluate;
  PlanSource source;
  std::shared_ptr<const Registry> types;  // that the plans' nodes are of
};

// Reads a pipeline from text; `file` names it in messages and gives the folder of relative paths.
// Throws PipelineError with all problems, in file order; then nothing was started.
Plans plan_pipeline(const std::string& text, const std::string& file, const Registry& registry,
                    const PlanOptions& options);

// The same from a file, "-" being standard input. Throws Error(kPipeline) when it cannot be read.
Plans plan_file(const std::string& file, const Registry& registry, const PlanOptions& options);

}  // namespace lanewise
