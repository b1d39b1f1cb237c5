// The texts that a run leaves: lines of metrics.jsonl, the manifest, and the parts of report.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/plan.h"
#include "runtime/ledger.h"
#include "runtime/values.h"

namespace lanewise {

// One line of metrics.jsonl: {"step":1,"loss":…,"lanes":[…],"streams":[…],"n":…,"lr":…,"grad_norm":…}. No clocks, so that
// two equal runs leave equal files. Numbers are the shortest that read back the same.
std::string metrics_line(const StepRecord& record);

// What a run is, written before its first step.
nlohmann::ordered_json manifest(const Plan& train, const Plan* evaluate, const std::vector<std::string>& overrides, int threads);

nlohmann::ordered_json edges_json(const FlowReport& report);
nlohmann::ordered_json nodes_json(const FlowReport& report);
// Samples that can be on edges at once, and that were at most, edge by edge: {"bound", "deepest"}.
nlohmann::ordered_json in_flight_json(const Plan& plan, const FlowReport& report);

std::int64_t peak_rss_bytes();

}  // namespace lanewise
