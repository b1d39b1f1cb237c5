// What a run has to know of its generators' programs before it can be planned.
#pragma once

#include <functional>
#include <vector>

#include "graph/plan.h"
#include "graph/spec.h"

namespace lanewise {

// Settings, as of --set, for the shapes that process sources leave open. One program of each such node is started,
// asked, and leaves again. Throws Error(kGenerator), or Error(kStopped) once `stop_wanted` says so.
std::vector<Override> ask_for_shapes(const Plan& plan, const std::function<bool()>& stop_wanted);

}  // namespace lanewise
