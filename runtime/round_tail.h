// What every process reads from a round's reduced tail, alike.
#pragma once

#include <span>

#include "runtime/lane_table.h"
#include "runtime/replica.h"
#include "runtime/values.h"

namespace lanewise {

// Fills in N, losses, and what the lanes' flags say. `tail`: of a reduced bucket.
void read_tail(Reduced& reduced, double n, std::span<const double> tail, const BucketLayout& layout,
               const LaneTable& lanes);

}  // namespace lanewise
