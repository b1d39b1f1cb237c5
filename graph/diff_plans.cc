// diff_plans: two plans node by node, as data, text, JSON and DOT.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "graph/diff.h"
#include "graph/dot.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;
using Nodes = std::vector<const PlanNode*>;

// The nodes of a plan by the id they were written under, in the plan's order.
struct ByBase {
  explicit ByBase(const Plan& plan) {
    for (const PlanNode& node : plan.nodes) {
      if (nodes[node.base].empty()) order.push_back(node.base);
      nodes[node.base].push_back(&node);
    }
  }
  std::map<std::string, Nodes> nodes;
  std::vector<std::string> order;
};

// "norm.sample x 2, capacity 4": what feeds one port of a node; `whole` names the instances.
Json inputs_of(const Plan& plan, const PlanNode& node, bool whole) {
  Json list = Json::array();
  for (std::size_t i = 0; i < node.inputs.size();) {
    const auto pattern = [&](std::size_t k) {
      const PlanEdge& edge = plan.edges[node.inputs[k]];
      const PlanNode& from = plan.nodes[edge.from];
      return fmt::format("{}.{} -> {}, capacity {}", whole ? from.id : from.base,
                         from.type->outputs[edge.from_port].name, node.type->inputs[edge.to_port].name, edge.capacity);
    };
    std::size_t end = i + 1;
    while (end < node.inputs.size() && pattern(end) == pattern(i)) ++end;
    list.push_back(end - i > 1 ? fmt::format("{} x {}", end - i, pattern(i)) : pattern(i));
    i = end;
  }
  return list;
}

// Everything told of one instance, by kind and name; kinds come in this order.
enum Fact { kType, kInputs, kDevice, kParameter, kOutput };
using Facts = std::map<std::pair<Fact, std::string>, Json>;

// A value's leaves under their paths, as parameters.
void flatten(const std::string& path, const Json& value, Facts& into) {
  if (!value.is_object() || value.empty()) {
    into[{kParameter, path}] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(path + "." + key, inner, into);
}

Facts facts_of(const Plan& plan, const PlanNode& node) {
  Facts facts{{{kType, "type"}, node.type->name}, {{kInputs, "inputs"}, inputs_of(plan, node, false)}};
  if (!node.device.empty()) facts[{kDevice, "device"}] = node.device;
  for (const auto& [key, value] : node.params.items()) flatten("params." + key, Json(value), facts);
  for (std::size_t p = 0; p < node.signatures.size(); ++p) {
    facts[{kOutput, "output " + node.type->outputs[p].name}] = node.signatures[p].text();
  }
  return facts;
}

void add(std::vector<Difference>& list, const std::string& what, const std::string& where, const Json& before,
         const Json& now) {
  const auto same = std::find_if(list.begin(), list.end(), [&](const Difference& other) {
    return other.what == what && other.before == before && other.now == now;
  });
  if (same != list.end()) {
    same->where.push_back(where);
  } else {
    list.push_back({what, {where}, before, now});
  }
}

// What is different between two tables; null stands for what is not there.
void compare(const Facts& before, const Facts& now, const std::string& where, std::vector<Difference>& list) {
  const auto at = [](const Facts& facts, const Facts::key_type& key) {
    const auto it = facts.find(key);
    return it == facts.end() ? Json() : it->second;
  };
  Facts all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [key, value] : all) {
    const Json a = at(before, key), b = at(now, key);
    if (a != b) add(list, key.second, where, a, b);
  }
}

std::vector<Difference> compare_nodes(const Plan& a, const Nodes& before, const Plan& b, const Nodes& now) {
  std::vector<Difference> list;
  if (before.size() != now.size()) list.push_back({"instances", {}, before.size(), now.size()});
  const std::size_t both = std::min(before.size(), now.size());
  for (std::size_t i = 0; i < both; ++i) {
    const std::size_t told = list.size();
    const Facts first = facts_of(a, *before[i]), second = facts_of(b, *now[i]);
    compare(first, second, now[i]->id, list);
    const Facts::key_type inputs{kInputs, "inputs"};
    const bool rewired = first.at(inputs) == second.at(inputs) && told == list.size() &&
                         inputs_of(a, *before[i], true) != inputs_of(b, *now[i], true);
    if (rewired) {
      add(list, "inputs", now[i]->id, inputs_of(a, *before[i], true), inputs_of(b, *now[i], true));
    }
  }
  for (Difference& difference : list) {
    if (difference.where.size() == both) difference.where.clear();
  }
  return list;
}

Facts facts_of(const Json& section) {
  Facts facts;
  for (const auto& [key, value] : section.items()) flatten(key, value, facts);
  return facts;
}

void compare_sections(const std::string& section, const std::string& id, const Json& before, const Json& now,
                      std::vector<PartDiff>& parts) {
  if (before == now) return;
  PartDiff part{PartDiff::Kind::kChanged, section, id, "", {}};
  if (before.is_null()) part.kind = PartDiff::Kind::kAdded;
  if (now.is_null()) part.kind = PartDiff::Kind::kRemoved;
  const Json& there = now.is_null() ? before : now;
  if (section == "model") part.type = there.value("type", "");
  if (part.kind == PartDiff::Kind::kChanged) {
    compare(facts_of(before), facts_of(now), id, part.differences);
    for (Difference& difference : part.differences) difference.where.clear();
  }
  parts.push_back(std::move(part));
}

std::optional<std::int64_t> parameters_of(const Plan& plan) {
  const std::vector<int> lanes = plan.with_role(Role::kCompute);
  return lanes.empty() ? std::nullopt : plan.nodes[lanes.front()].signatures[0].parameters;
}

const char* to_string(PartDiff::Kind kind) {
  return kind == PartDiff::Kind::kAdded ? "added" : kind == PartDiff::Kind::kRemoved ? "removed" : "changed";
}

std::string shown_value(const Json& value) {
  return value.is_null() ? "nothing" : escaped(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string count_text(const std::optional<std::int64_t>& parameters) {
  return parameters ? fmt::format("{}", *parameters) : "unknown until run";
}

bool is_section(const PartDiff& part) { return part.section == "run" || part.section == "evaluate"; }

constexpr std::size_t kNamed = 4;  // instances spelt out in a line

std::string where_text(const std::vector<std::string>& where) {
  if (where.empty()) return "";
  std::vector<std::string> named(where.begin(), where.begin() + static_cast<long>(std::min(where.size(), kNamed)));
  for (std::string& one : named) one = escaped(one);
  if (where.size() > kNamed) named.push_back(fmt::format("{} more", where.size() - kNamed));
  return " in " + listed(named);
}

}  // namespace

PlanDiff diff_plans(const Plan& before, const Plan& now) {
  const ByBase a(before), b(now);
  std::vector<std::pair<Role, PartDiff>> nodes;
  for (const std::string& id : a.order) {
    const PlanNode& first = *a.nodes.at(id).front();
    const auto other = b.nodes.find(id);
    if (other == b.nodes.end()) {
      nodes.emplace_back(first.type->role, PartDiff{PartDiff::Kind::kRemoved, "", id, first.type->name, {}});
      continue;
    }
    const PlanNode& second = *other->second.front();
    std::vector<Difference> differences = compare_nodes(before, a.nodes.at(id), now, other->second);
    if (differences.empty()) continue;
    nodes.emplace_back(second.type->role,
                       PartDiff{PartDiff::Kind::kChanged, "", id, second.type->name, std::move(differences)});
  }
  for (const std::string& id : b.order) {
    const PlanNode& node = *b.nodes.at(id).front();
    if (a.nodes.contains(id)) continue;
    nodes.emplace_back(node.type->role, PartDiff{PartDiff::Kind::kAdded, "", id, node.type->name, {}});
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const auto& x, const auto& y) { return x.first < y.first; });

  PlanDiff diff;
  for (auto& [role, part] : nodes) {
    part.section = to_string(role);
    diff.parts.push_back(std::move(part));
  }
  const Json none;
  const auto section = [&](const Plan& plan, const char* name) {
    return plan.expanded.contains(name) ? plan.expanded.at(name) : none;
  };
  const Json models_before = section(before, "models"), models_now = section(now, "models");
  std::set<std::string> names;
  for (const Json* models : {&models_before, &models_now}) {
    for (const auto& [name, model] : models->items()) names.insert(name);
  }
  for (const std::string& name : names) {
    compare_sections("model", name, models_before.value(name, none), models_now.value(name, none), diff.parts);
  }
  for (const char* name : {"run", "evaluate"}) {
    compare_sections(name, name, section(before, name), section(now, name), diff.parts);
  }
  diff.parameters_before = parameters_of(before);
  diff.parameters_now = parameters_of(now);
  return diff;
}

std::string diff_text(const PlanDiff& diff) {
  if (diff.equal()) return "the plans are the same\n";
  std::string text;
  for (const PartDiff& part : diff.parts) {
    text += fmt::format("{}{}{}{}\n",
                        part.kind == PartDiff::Kind::kAdded     ? "+ "
                        : part.kind == PartDiff::Kind::kRemoved ? "- "
                                                                : "~ ",
                        part.section, is_section(part) ? "" : " " + escaped(part.id),
                        part.type.empty() ? "" : fmt::format(" ({})", escaped(part.type)));
    std::set<std::string> told;  // where each instance has its own values, the first stands for all
    for (const Difference& one : part.differences) {
      if (!told.insert(one.what).second) continue;
      std::size_t others = 0;
      for (const Difference& other : part.differences) {
        if (other.what == one.what && &other != &one) others += other.where.size();
      }
      text += fmt::format("    {}: {} -> {}{}{}\n", escaped(one.what), shown_value(one.before), shown_value(one.now),
                          where_text(one.where),
                          others == 0 ? "" : fmt::format(", other values in {}", counted(others, "instance")));
    }
  }
  if (diff.parameters_before != diff.parameters_now) {
    text += fmt::format("parameters: {} -> {}\n", count_text(diff.parameters_before), count_text(diff.parameters_now));
  }
  return text;
}

Json diff_json(const PlanDiff& diff) {
  Json parts = Json::array();
  for (const PartDiff& part : diff.parts) {
    Json differences = Json::array();
    for (const Difference& one : part.differences) {
      Json entry{{"what", one.what}, {"before", one.before}, {"now", one.now}};
      if (!one.where.empty()) entry["where"] = one.where;
      differences.push_back(std::move(entry));
    }
    Json entry{{"change", to_string(part.kind)}, {"section", part.section}, {"id", part.id}};
    if (!part.type.empty()) entry["type"] = part.type;
    if (!differences.empty()) entry["differences"] = std::move(differences);
    parts.push_back(std::move(entry));
  }
  const auto count = [](const std::optional<std::int64_t>& n) { return n ? Json(*n) : Json(); };
  return {{"equal", diff.equal()},
          {"parts", std::move(parts)},
          {"parameters", {{"before", count(diff.parameters_before)}, {"now", count(diff.parameters_now)}}}};
}

std::string diff_dot(const Plan& before, const Plan& now, const PlanDiff& diff) {
  constexpr const char *kAdded = "forestgreen", *kRemoved = "crimson", *kChanged = "darkorange", *kSame = "black";
  std::map<std::string, const char*> colours;
  for (const PartDiff& part : diff.parts) {
    if (part.section == "model" || is_section(part)) continue;
    colours[part.id] = part.kind == PartDiff::Kind::kAdded     ? kAdded
                       : part.kind == PartDiff::Kind::kRemoved ? kRemoved
                                                               : kChanged;
  }
  const ByBase a(before), b(now);
  std::string text = "digraph diff {\n  rankdir=LR;\n  node [shape=box];\n";
  const auto one = [](const Nodes& nodes) { return fmt::format("{} x {}", nodes.size(), nodes.front()->type->name); };
  const auto draw = [&](const std::string& id) {
    const auto old = a.nodes.find(id), fresh = b.nodes.find(id);
    std::string what = fresh == b.nodes.end() ? one(old->second) : one(fresh->second);
    if (old != a.nodes.end() && fresh != b.nodes.end() && one(old->second) != what) {
      what = one(old->second) + " -> " + what;
    }
    const auto colour = colours.find(id);
    const char* const drawn = colour == colours.end() ? kSame : colour->second;
    text += fmt::format("  {} [label={}, color={}, fontcolor={}];\n", dot_id(id), dot_label(id + "\n" + what), drawn,
                        drawn);
  };
  for (const std::string& id : a.order) draw(id);
  for (const std::string& id : b.order) {
    if (!a.nodes.contains(id)) draw(id);
  }
  using Edge = std::tuple<std::string, std::string, std::string>;  // from, to, what it carries
  const auto edges_of = [](const Plan& plan) {
    std::map<Edge, std::size_t> edges;
    for (const PlanEdge& edge : plan.edges) {
      const PlanNode& from = plan.nodes[edge.from];
      ++edges[{from.base, plan.nodes[edge.to].base, from.type->outputs[edge.from_port].name}];
    }
    return edges;
  };
  const std::map<Edge, std::size_t> old = edges_of(before), fresh = edges_of(now);
  std::map<Edge, std::size_t> all = fresh;
  all.insert(old.begin(), old.end());
  for (const auto& [edge, count] : all) {
    const auto x = old.find(edge), y = fresh.find(edge);
    const char* const colour = x == old.end()           ? kAdded
                               : y == fresh.end()       ? kRemoved
                               : x->second != y->second ? kChanged
                                                        : kSame;
    const auto& [from, to, carries] = edge;
    text += fmt::format("  {} -> {} [label={}, color={}];\n", dot_id(from), dot_id(to),
                        dot_label(fmt::format("{} x {}", count, carries)), colour);
  }
  return text + "}\n";
}

}  // namespace lanewise
