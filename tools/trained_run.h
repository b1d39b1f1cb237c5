// A run directory, opened to go on with what it holds.
#pragma once

#include <string>
#include <vector>

#include "graph/spec.h"
#include "runtime/checkpoint.h"

namespace lanewise {

// The plans of the run in `directory`, made again from its manifest with `changes` on top. Throws Error(kCommandLine)
// when it holds no run, and Error(kCheckpoint) showing the difference when the same pipeline makes another plan now.
Plans plan_run(const std::string& directory, const std::vector<Override>& changes, bool predict,
               const Registry& registry);

// Throws Error(kCheckpoint) showing the difference when the run in `directory` is of another plan.
void check_plan_of(const std::string& directory, const Plan& plan);

// The newest valid checkpoint of a run, or the one with the best evaluation. Throws Error(kCheckpoint) when there is
// none.
Checkpoint checkpoint_of(const std::string& directory, bool best);

}  // namespace lanewise
