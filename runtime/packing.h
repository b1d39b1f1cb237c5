// What processes hand each other, as bytes or JSON: checkpoints, and the counters of a report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "runtime/checkpoint.h"
#include "runtime/ledger.h"

namespace lanewise {

std::string pack(const Checkpoint& checkpoint);
Checkpoint unpack(const std::string& bytes);

nlohmann::json pack(const StreamAccount& account);
StreamAccount unpack_account(const nlohmann::json& packed);

nlohmann::json pack(const FlowReport& report);
FlowReport unpack_flow_report(const nlohmann::json& packed);

// One report of a whole plan from those of its parts, by rank: of a node that several parts have, the first's; of one
// that none has, zeros.
FlowReport merge_reports(const Plan& whole, const std::vector<FlowReport>& parts);

}  // namespace lanewise
