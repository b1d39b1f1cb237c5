// What is different between two plans, for a person.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lanewise {

// One line a difference between two expanded pipelines (Plan::expanded), "gen3.params.rows: \"0:300\" -> \"0:200\"", in
// the order of the first; nodes by their ids. Empty: there is none.
std::vector<std::string> plan_differences(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

}  // namespace lanewise
