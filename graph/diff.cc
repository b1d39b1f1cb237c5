#include "graph/diff.h"

#include <fmt/format.h>

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

void compare(const std::string& where, const Json& before, const Json& now, std::vector<std::string>& lines) {
  if (before == now) return;
  if (!before.is_object() || !now.is_object()) {
    const auto text = [](const Json& value) { return value.is_discarded() ? "nothing" : value.dump(); };
    lines.push_back(fmt::format("{}: {} -> {}", where, text(before), text(now)));
    return;
  }
  const Json nothing(Json::value_t::discarded);
  const auto below = [&](const std::string& key) { return where.empty() ? key : where + "." + key; };
  for (auto it = before.begin(); it != before.end(); ++it) {
    const auto other = now.find(it.key());
    compare(below(it.key()), *it, other == now.end() ? nothing : *other, lines);
  }
  for (auto it = now.begin(); it != now.end(); ++it) {
    if (!before.contains(it.key())) compare(below(it.key()), nothing, *it, lines);
  }
}

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
  compare("", by_id(before), by_id(now), lines);
  return lines;
}

}  // namespace lanewise
