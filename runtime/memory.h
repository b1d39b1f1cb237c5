// What a run holds in memory, part by part, for its report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "graph/flow.h"
#include "graph/plan.h"
#include "runtime/optimizer_ops.h"
#include "runtime/replica.h"

namespace lanewise {

// Samples that can be on edges at once, and that were at most, edge by edge: {"bound", "deepest"}.
nlohmann::ordered_json in_flight_json(const Plan& plan, const FlowReport& report);

// Bytes of what this process holds, on the host and on GPUs: {"weights", "optimizer", "buckets", "reduced", "queued"}.
// `queued` is of the tensors of the samples above, {"bound", "deepest"}, null where a shape is unknown. `plan` and
// `report`: of this process. Where no step is under way.
nlohmann::ordered_json memory_json(const Plan& plan, const FlowReport& report, Replicas& replicas,
                                   const Optimizers& optimizers);

// The most that was resident of this process so far.
std::int64_t peak_rss_bytes();

}  // namespace lanewise
