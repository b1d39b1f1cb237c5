// Fused lanes: neighbours whose rows may be computed together become one compute node with a larger batch. It is the
// same mathematics, and another plan: `graph` and `check` show it.
//
//   pair0 -> lane0 -> reduce    becomes    pair0 -> lane[0..1]:batch -> lane[0..1] -> reduce
//   pair1 -> lane1 -> reduce               pair1 ->
//
// It follows from the file, the devices and how many hosts there are, never from threads, timing or how many processes
// a host has; those share out the groups.
#pragma once

#include <optional>

#include "graph/plan.h"

namespace lanewise {

// Fuses the lanes of both plans by train.run.fuse, and says in train.fusion which, or why not. `merge`: the node type
// that puts batches together; null: nothing is fused. `hosts`: that share out the lanes. Requires: plans without a
// problem.
void fuse(Plan& train, std::optional<Plan>& evaluate, const NodeType* merge, int hosts);

// The joins that the lanes' rows come from, in their order: one for every lane, also for each of those that are fused.
std::vector<int> joins_of_lanes(const Plan& plan);

}  // namespace lanewise
