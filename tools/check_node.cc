// lanewise check-node: whether a type keeps to the rules that all of its kind keep to.
#include <fmt/format.h>

#include <algorithm>

#include "graph/text.h"
#include "nodes/conformance.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// The parameters that --set gives, by the types that the fields have. Throws where the type does not take them, or
// needs others.
nlohmann::json params_of(const std::string& type, const std::vector<Override>& sets,
                         const std::function<void(Fields&)>& tell) {
  nlohmann::json params = nlohmann::json::object();
  const std::vector<FieldInfo> infos = describe(tell);
  for (const Override& change : sets) {
    if (change.kind != Override::Kind::kSet) continue;
    const std::size_t equals = change.text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(Exit::kCommandLine, fmt::format("--set {}: write it as PARAMETER=VALUE", escaped(change.text)));
    const std::string name = change.text.substr(0, equals), value = change.text.substr(equals + 1);
    const auto info = std::ranges::find(infos, name, &FieldInfo::name);
    const bool text = info != infos.end() && (info->type == "text" || info->type == "file");
    const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
    params[name] = text || json.is_discarded() ? nlohmann::json(value) : json;
  }
  std::vector<Problem> problems;
  Fields fields(
      {&params, type, [](const std::string&) { return Place{}; }, [](const std::string&) { return std::string(); }},
      problems);
  if (tell) tell(fields);
  fields.finish();
  if (problems.empty()) return params;
  throw Error(Exit::kCommandLine, problems.front().rule + "; --set PARAMETER=VALUE gives parameters");
}

struct Checked {
  std::string title;  // "window (per-sample)"
  Conformance conformance;
};

std::string text_of(const Checked& checked) {
  std::string text = checked.title + "\n";
  std::size_t held = 0;
  for (const Finding& finding : checked.conformance.findings) {
    const bool holds = finding.why_not.empty();
    held += holds;
    text += fmt::format("  {}  {}{}\n", holds ? "yes" : "NO ", finding.rule, holds ? "" : ": " + finding.why_not);
  }
  const auto& [findings, cost, untried] = checked.conformance;
  return text + fmt::format("{} of {} rules hold{}{}\n", held, findings.size(),
                            cost.empty() ? "" : "; it takes " + cost, untried.empty() ? "" : "; " + untried);
}

Json json_of(const Checked& checked) {
  Json rules = Json::array();
  for (const Finding& finding : checked.conformance.findings)
    rules.push_back({{"rule", finding.rule}, {"holds", finding.why_not.empty()}, {"why_not", finding.why_not}});
  return {{"type", checked.title},
          {"holds", checked.conformance.holds()},
          {"rules", rules},
          {"cost", checked.conformance.cost},
          {"untried", checked.conformance.untried}};
}

}  // namespace

int check_node_command(const Arguments& arguments) {
  Options options(
      "check-node",
      "Tries one type by itself, built in or a plugin's, and says which rules of its kind hold and what was seen where "
      "one does not: what it tells against what it does, order, ends, saved states, randomness, its inputs left alone; "
      "of models and losses rows apart, carried state and gradients against finite differences. Loads the plugins that "
      "are named. Exit 70 when a rule does not hold.",
      {"lanewise check-node window --set length=3", "lanewise check-node gru",
       "lanewise check-node spike --plugin build/libspike.so"});
  bool json = false;
  options.type();
  options.plugins();
  options.flag("--json", json, "prints the findings as JSON");
  if (!options.parse(arguments)) return 0;

  const std::string name = options.file();
  const Types types = options.listed_types(/*with_built_in=*/true);
  const auto from = [](const auto& type) {
    return type.plugin.empty() ? std::string() : ", of " + escaped(type.plugin);
  };
  const std::vector<Override> sets = options.overrides();
  std::vector<Checked> all;
  std::vector<std::string> names;
  for (const NodeType& type : types.nodes) {
    if (type.internal) continue;
    names.push_back(type.name);
    if (type.name != name) continue;
    all.push_back({fmt::format("{} ({}{})", name, to_string(type.role), from(type)),
                   check_node(type, params_of(name, sets, type.fields))});
  }
  for (const PartType& type : types.models) {
    names.push_back(type.name);
    if (type.name != name) continue;
    all.push_back({fmt::format("{} (model{})", name, from(type)),
                   check_model(model_type(name), params_of(name, sets, type.fields))});
  }
  for (const PartType& type : types.losses) {
    names.push_back(type.name);
    if (type.name != name) continue;
    if (all.empty()) params_of(name, sets, type.fields);  // else of the model of that name
    all.push_back({fmt::format("{} (loss{})", name, from(type)), check_loss(loss_type(name))});
  }
  if (all.empty()) {
    throw Error(Exit::kCommandLine,
                fmt::format("there is no node type, model or loss {}{}; `lanewise nodes` lists them all",
                            in_quotes(name), did_you_mean(name, names)));
  }
  std::string text;
  Json list = Json::array();
  for (const Checked& checked : all) {
    text += (text.empty() ? "" : "\n") + text_of(checked);
    list.push_back(json_of(checked));
  }
  Output().write(json ? to_text(list) + "\n" : text);
  const bool hold = std::ranges::all_of(all, [](const Checked& checked) { return checked.conformance.holds(); });
  return hold ? 0 : static_cast<int>(Exit::kInternal);
}

}  // namespace lanewise
