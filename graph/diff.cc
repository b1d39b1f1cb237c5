#include "graph/diff.h"

#include <fmt/format.h>

#include "graph/json_differences.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// The pipeline with its nodes under their ids.
Json by_id(const Json& expanded) {
  Json result = Json::object();
  for (auto it = expanded.begin(); it != expanded.end(); ++it) {
    if (it.key() != "nodes") {
      result[it.key()] = *it;
      continue;
    }
    for (const Json& node : *it) result[node.at("id").get<std::string>()] = node;
  }
  return result;
}

}  // namespace

std::vector<std::string> plan_differences(const Json& before, const Json& now) {
  std::vector<std::string> lines;
  const auto text = [](const Json* value) { return value ? value->dump() : "nothing"; };
  visit_differences("", by_id(before), by_id(now), [&](const std::string& where, const Json* a, const Json* b) {
    lines.push_back(fmt::format("{}: {} -> {}", where, text(a), text(b)));
  });
  return lines;
}

}  // namespace lanewise
