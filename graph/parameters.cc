#include "graph/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

// n, n+1, …: the i-th; nullopt when it leaves the range of integers.
std::optional<Json> counted_up(const Json& n, std::int64_t i) {
  if (n.is_number_unsigned()) {
    const auto start = n.get<std::uint64_t>();
    const auto step = static_cast<std::uint64_t>(i);
    if (start > std::numeric_limits<std::uint64_t>::max() - step) return std::nullopt;
    return start + step;
  }
  if (n.is_number_integer()) return n.get<std::int64_t>() + i;  // negative: cannot overflow upwards
  return n.get<double>() + static_cast<double>(i);
}

}  // namespace

Parameters::Parameters(const NodeSpec& node, const Document& document, std::vector<Problem>& problems) : node_(node) {
  const std::vector<FieldInfo> infos = describe(node.type->fields);
  std::vector<std::string> names;
  for (const FieldInfo& info : infos) names.push_back(info.name);
  const auto problem = [&](const std::string& key, const std::string& rule) {
    problems.push_back({node.each.origin_of(relative_to({key})).place(document), rule});
    sound_ = false;
  };
  for (const auto& [key, value] : node.each.values().items()) {
    const std::string name = in_quotes(key);
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      problem(key, fmt::format("{} has no parameter {}{}", node.type->name, name, did_you_mean(key, names)));
    } else if (node.params.values().contains(key)) {
      problem(key, fmt::format("{}: {} is given both in \"params\" and in \"each\"", node.type->name, name));
    } else if (value.is_array() && value.size() != static_cast<std::size_t>(node.count())) {
      problem(key, fmt::format("{}: {} has {}, but {} has {}", node.type->name, name, counted(value.size(), "value"),
                               in_quotes(node.id), counted(node.count(), "instance")));
    } else if (!value.is_array() && !value.is_number()) {
      problem(key,
              fmt::format("{}: {} must be a list with one value an instance ({}), or a number to count from, not {}",
                          node.type->name, name, node.count(), shown(value)));
    } else if (value.is_number() && !counted_up(value, node.count() - 1)) {
      problem(key, fmt::format("{}: {} counts beyond the largest integer", node.type->name, name));
    } else {
      each_.push_back(key);
    }
  }
}

Written Parameters::of(std::int64_t instance, bool evaluating) const {
  Written params = node_.params;
  for (const std::string& key : each_) {
    const Json& value = node_.each.values().at(key);
    const Origin origin = node_.each.origin_of(relative_to({key}));
    if (value.is_array()) {
      params.set({key}, value[static_cast<std::size_t>(instance)], origin.below(fmt::format("{}", instance)));
    } else {
      params.set({key}, *counted_up(value, instance), origin);
    }
  }
  const auto apply = [&](const std::vector<NodeChange>& changes) {
    for (const NodeChange& change : changes) {
      if (!change.instances.contains(instance)) continue;
      if (change.value) {
        params.set(change.path, *change.value, change.origin);
      } else if (params.find(change.path)) {
        params.take(change.path, change.origin);
      }
    }
  };
  apply(node_.changes);
  if (evaluating) apply(node_.evaluate_changes);
  return params;
}

}  // namespace lanewise
