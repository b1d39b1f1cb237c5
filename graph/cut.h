// The part of a plan that one of several processes runs: some of its lanes, what feeds them, and what follows.
#pragma once

#include "graph/plan.h"

namespace lanewise {

// Lanes [begin, end), by their order in the plan.
struct LaneRange {
  int begin = 0, end = 0;
  int count() const { return end - begin; }
  bool holds(int lane) const { return begin <= lane && lane < end; }
};

// Those of process `rank` of `processes`: neighbours, as evenly as it goes.
LaneRange lanes_of(int lanes, int rank, int processes);

// The plan of these lanes, with the whole plan's settings and digest. What hangs behind the optimizer alone, such as a
// console, is the first process's, `first`.
Plan cut(const Plan& plan, LaneRange lanes, bool first);

}  // namespace lanewise
