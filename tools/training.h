// What `run` and `resume` do alike: train, say how it went, and end with what came of it.
#pragma once

#include "graph/spec.h"
#include "runtime/trainer.h"

namespace lanewise {

// Trains with this process's signals and standard error; prints the report as a summary, or as JSON. The exit code.
int train_and_tell(Plans plans, RunOptions options, bool json);

}  // namespace lanewise
