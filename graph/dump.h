// Pictures of a plan, before a run or with the counters of one: text, DOT and JSON. Ids only, never addresses: two
// dumps of one plan are equal.
#pragma once

#include <string>

#include "graph/flow.h"
#include "graph/plan.h"

namespace lanewise {

std::string dump_text(const Plan& plan, const FlowReport* report = nullptr);
std::string dump_dot(const Plan& plan, const FlowReport* report = nullptr);
nlohmann::ordered_json dump_json(const Plan& plan, const FlowReport* report = nullptr);

}  // namespace lanewise
