// The report of a run as a few lines for a person.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lanewise {

// Steps, loss first and last, the evaluation against both baselines, pooled and per stream, speed, the slowest node,
// and where the rest is. `report` is what Trainer::run() returned.
std::string summary(const nlohmann::ordered_json& report, const std::string& directory);

}  // namespace lanewise
