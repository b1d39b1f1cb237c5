// lanewise check: what a pipeline would run, worked out without starting, opening or connecting to anything but headers
// of data files. What it prints is what it checked.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "graph/text.h"
#include "nodes/builtin.h"
#include "runtime/device.h"
#include "runtime/setup.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// The value that all instances share, or {"each": […]} with that of each.
Json shared_value(const std::vector<Json>& values) {
  for (const Json& value : values) {
    if (value != values.front()) return {{"each", values}};
  }
  return values.front();
}

// Instances of one id and type: what they share and how many there are.
Json describe_nodes(const Plan& plan) {
  using Key = std::pair<std::string, const NodeType*>;  // a swapped instance has another type than its neighbours
  std::vector<Key> keys;
  std::map<Key, std::vector<const PlanNode*>> groups;
  for (const PlanNode& node : plan.nodes) {
    const Key key{node.base, node.type};
    if (groups[key].empty()) keys.push_back(key);
    groups[key].push_back(&node);
  }
  Json list = Json::array();
  for (const Key& key : keys) {
    const auto& nodes = groups[key];
    const PlanNode& first = *nodes.front();
    Json emits = Json::object(), params = Json::object(), facts = Json::object();
    for (std::size_t p = 0; p < first.type->outputs.size() && p < first.signatures.size(); ++p) {
      std::vector<Json> texts;
      for (const PlanNode* node : nodes) texts.push_back(node->signatures[p].text());
      emits[first.type->outputs[p].name] = shared_value(texts);
    }
    const auto share = [&](const auto& object, auto member, Json& into) {
      for (const auto& [name, value] : object.items()) {
        std::vector<Json> values;
        for (const PlanNode* node : nodes) {
          values.push_back((node->*member).contains(name) ? Json((node->*member).at(name)) : Json());
        }
        into[name] = shared_value(values);
      }
    };
    share(first.params, &PlanNode::params, params);
    share(first.facts, &PlanNode::facts, facts);
    Json devices = Json::array();
    for (const PlanNode* node : nodes) {
      if (!node->device.empty()) devices.push_back(node->device);
    }
    list.push_back({{"id", first.base},
                    {"count", nodes.size()},
                    {"type", first.type->name},
                    {"role", to_string(first.type->role)},
                    {"devices", devices},
                    {"emits", emits},
                    {"params", params},
                    {"facts", facts}});
  }
  return list;
}

// Edges between two base ids: how many, and what is on them.
Json describe_edges(const Plan& plan) {
  Json list = Json::array();
  for (const PlanEdge& edge : plan.edges) {
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    const std::string carries = edge.from_port < static_cast<int>(from.signatures.size())
                                    ? from.signatures[edge.from_port].text()
                                    : "unknown until run";
    Json entry = {{"from", from.base},       {"port", from.type->outputs[edge.from_port].name},
                  {"to", to.base},           {"capacity", edge.capacity},
                  {"initial", edge.initial}, {"carries", carries}};
    const auto same = std::find_if(list.begin(), list.end(), [&](Json other) {
      other.erase("count");
      return other == entry;
    });
    if (same != list.end()) {
      (*same)["count"] = (*same)["count"].get<int>() + 1;
    } else {
      entry["count"] = 1;
      list.push_back(entry);
    }
  }
  return list;
}

Json describe(const Plan& plan) {
  Json json = {{"nodes", describe_nodes(plan)}, {"edges", describe_edges(plan)}, {"end_rule", plan.end_rule}};
  if (!plan.fusion.empty()) json["fusion"] = plan.fusion;
  return json;
}

Json describe_models(const Plan& plan) {
  Json list = Json::array();
  for (const PlanModel& model : plan.models) {
    list.push_back({{"id", model.name}, {"type", model.type}, {"params", model.params}});
  }
  return list;
}

int count(const Json& list) {
  int sum = 0;
  for (const Json& entry : list) sum += entry["count"].get<int>();
  return sum;
}

// A value as one would write it in the file; words without quotes.
std::string plain(const Json& value) {
  if (value.is_object() && value.contains("each")) return fmt::format("one for each of {}", value["each"].size());
  if (value.is_number_integer()) {
    return value.get<std::int64_t>() < 0 ? value.dump() : grouped(value.get<std::uint64_t>());
  }
  if (value.is_number_float()) return short_number(value.get<double>());
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const bool word = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    if (word) return text;
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// "path one for each of 16, rows "0:300""; what is not given is left out.
std::string plain_list(const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, plain(value));
  }
  return text;
}

// "gradient: 161 parameters; prediction: y [1]"
std::string emits(const Json& ports) {
  std::string text;
  for (const auto& [port, carries] : ports.items()) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", port,
                        carries.is_string() ? carries.get<std::string>() : plain(carries));
  }
  return text;
}

std::string text_of_plan(const std::string& title, const Json& plan) {
  std::vector<std::vector<std::string>> nodes, edges, params, facts;
  for (const Json& node : plan["nodes"]) {
    const Json& devices = node["devices"];
    const std::string where =
        devices.empty() ? ""
        : devices.front() == devices.back()
            ? devices.front().get<std::string>()
            : fmt::format("{} … {}", devices.front().get<std::string>(), devices.back().get<std::string>());
    const std::string id = node["id"];
    nodes.push_back({fmt::format("{} x", node["count"].get<int>()), node["type"], id, emits(node["emits"]), where});
    if (!node["params"].empty()) params.push_back({id, plain_list(node["params"])});
    if (!node["facts"].empty()) facts.push_back({id, plain_list(node["facts"])});
  }
  for (const Json& edge : plan["edges"]) {
    const int initial = edge["initial"];
    edges.push_back({fmt::format("{} x", edge["count"].get<int>()),
                     fmt::format("{} -> {}", edge["from"].get<std::string>(), edge["to"].get<std::string>()),
                     fmt::format("capacity {}", edge["capacity"].get<int>()), edge["carries"],
                     initial ? fmt::format("feedback, starts with {} packet", initial) : ""});
  }
  std::string text = fmt::format("{}\n  nodes: {}\n{}", title, count(plan["nodes"]), columns(nodes, "    "));
  text += fmt::format("  edges: {}\n{}", count(plan["edges"]), columns(edges, "    "));
  text += "  parameters\n" + columns(params, "    ");
  if (!facts.empty()) text += "  sizes, of each\n" + columns(facts, "    ");
  if (plan.contains("fusion")) text += fmt::format("  {}\n", plan["fusion"].get<std::string>());
  return text + fmt::format("  when a stream ends: {}\n", plan["end_rule"].get<std::string>());
}

std::string text_of(const Json& json) {
  std::string text = fmt::format("{}: \"{}\" can run (digest {})\n\n", json["file"].get<std::string>(),
                                 json["name"].get<std::string>(), json["digest"].get<std::string>().substr(0, 16));
  text += text_of_plan("training", json["train"]);
  if (json.contains("plugins")) {
    text += "\nplugins, told by the descriptors beside them; nothing of them was loaded\n";
    std::vector<std::vector<std::string>> plugins;
    for (const auto& [file, sha256] : json["plugins"].items())
      plugins.push_back({file, "SHA-256 " + std::string(sha256)});
    text += columns(plugins, "  ");
  }
  if (!json["models"].empty()) text += "\nmodels\n";
  std::vector<std::vector<std::string>> models;
  for (const Json& model : json["models"]) models.push_back({model["id"], model["type"], plain_list(model["params"])});
  text += columns(models, "  ");
  text += fmt::format("\nrun\n  {}\n", plain_list(json["run"]));
  if (!json["evaluate"].is_null()) {
    const Json& every = json["evaluate"]["every"];
    text += "\n" + text_of_plan(every.is_null()
                                    ? "evaluation, after the last step"
                                    : fmt::format("evaluation, every {} steps and after the last", every.get<int>()),
                                json["evaluate"]);
  }
  if (!json["notes"].empty()) text += "\nnotes\n";
  for (const Json& note : json["notes"]) text += fmt::format("  {}\n", note.get<std::string>());
  const Json& checked = json["checked"];
  return text + fmt::format(
                    "\nchecked {} nodes, {} parameters, {} edges and the shapes along them ({} unknown until run); "
                    "nothing was started\n",
                    checked["nodes"].get<int>(), checked["parameters"].get<int>(), checked["edges"].get<int>(),
                    checked["unknown"].get<int>());
}

Json check(const std::string& file, const Plans& plans) {
  Json json = {{"exit", 0}, {"file", file}, {"name", plans.train.name}, {"digest", plans.train.digest}};
  int parameters = 0, unknown = 0, nodes = 0, edges = 0;
  const auto tally = [&](const Plan& plan) {
    nodes += static_cast<int>(plan.nodes.size());
    edges += static_cast<int>(plan.edges.size());
    for (const PlanNode& node : plan.nodes) parameters += static_cast<int>(node.params.size());
    for (const PlanEdge& edge : plan.edges) {
      const auto& signatures = plan.nodes[edge.from].signatures;
      if (plan.nodes[edge.from].type->outputs[edge.from_port].carries == "step") continue;  // it has no shape
      unknown += edge.from_port >= static_cast<int>(signatures.size()) ||
                 signatures[edge.from_port].text().find("unknown") != std::string::npos;
    }
  };
  tally(plans.train);
  if (plans.train.expanded.contains("plugins")) json["plugins"] = plans.train.expanded["plugins"];
  json["train"] = describe(plans.train);
  json["models"] = describe_models(plans.train);
  json["run"] = plans.train.expanded.contains("run") ? plans.train.expanded["run"] : Json::object();
  json["evaluate"] = nullptr;
  json["notes"] = plans.train.notes;
  if (plans.evaluate) {
    tally(*plans.evaluate);
    json["evaluate"] = describe(*plans.evaluate);
    const auto& settings = plans.evaluate->evaluate ? plans.evaluate->evaluate : plans.train.evaluate;
    json["evaluate"]["every"] = settings && settings->every ? Json(*settings->every) : Json();
    json["evaluate"]["steps"] = settings && settings->steps ? Json(*settings->steps) : Json();
    for (const std::string& note : plans.evaluate->notes) {
      if (std::find(json["notes"].begin(), json["notes"].end(), note) == json["notes"].end())
        json["notes"].push_back(note);
    }
  }
  for (const std::string& part : inexact_parts(plans.train)) json["notes"].push_back(part);
  if (const std::string why = device_refusal(plans.train); !why.empty()) json["notes"].push_back(why);
  if (const int gpus = visible_gpus()) json["notes"].push_back(fmt::format("{} here", counted(gpus, "GPU")));
  json["checked"] = {{"nodes", nodes}, {"parameters", parameters}, {"edges", edges}, {"unknown", unknown}};
  return json;
}

}  // namespace

int check_command(const Arguments& arguments) {
  Options options(
      "check",
      "Checks a pipeline and says what it checked: nodes, edges, capacities, parameters, shapes, sizes. "
      "Starts, opens and connects to nothing but headers of data files, so it is safe on any file.",
      {"lanewise check configs/flights16.json", "lanewise check configs/flights16.json --set models.net.hidden=64",
       "lanewise check mine.json --json | python3 -m json.tool", "generate_pipeline | lanewise check -"});
  bool json = false;
  options.pipeline();
  options.flag("--json", json, "prints what was checked, or the problems, as JSON");
  if (!options.parse(arguments)) return 0;
  const Json result = check(options.file(), options.plan(builtin_registry()));
  Output().write(json ? to_text(result) + "\n" : text_of(result));
  return 0;
}

}  // namespace lanewise
