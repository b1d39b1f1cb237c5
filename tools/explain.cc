// lanewise explain-config: where a value of a pipeline came from.
#include "graph/explain.h"

#include <fmt/format.h>

#include "graph/load.h"
#include "graph/text.h"
#include "nodes/builtin.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// "lane3.loss", "gen0.seed and 3 more".
std::string names_text(const std::vector<std::string>& names) {
  return names.size() == 1 ? escaped(names.front())
                           : fmt::format("{} and {} more", escaped(names.front()), names.size() - 1);
}

std::string text_of(const std::vector<Explained>& list) {
  std::string text;
  for (const Explained& one : list) {
    text +=
        fmt::format("{}{} = {}\n", names_text(one.names), one.evaluating ? " in evaluations" : "", one.value().dump());
    std::vector<std::vector<std::string>> rows;
    for (const Explained::Step& step : one.steps) rows.push_back({step.where, step.value.dump(), step.what});
    text += columns(rows, "  ");
  }
  return text;
}

Json json_of(const std::vector<Explained>& list) {
  Json json = Json::array();
  for (const Explained& one : list) {
    Json steps = Json::array();
    for (const Explained::Step& step : one.steps) {
      steps.push_back({{"where", step.where}, {"value", step.value}, {"what", step.what}});
    }
    json.push_back({{"names", one.names}, {"evaluation", one.evaluating}, {"value", one.value()}, {"steps", steps}});
  }
  return json;
}

}  // namespace

int explain_config_command(const Arguments& arguments) {
  Options options(
      "explain-config",
      "Says where a value of a pipeline came from: its default, then every place that wrote it (a base, the "
      "file, the command line), the last one in force. Starts nothing.",
      {"lanewise explain-config configs/flights16.json lane3.loss",
       "lanewise explain-config mine.json 'gen[0..7].path' --set gen2.path=x.csv",
       "lanewise explain-config mine.json --keys"});
  std::string key;
  bool json = false, keys = false;
  options.pipeline();
  options.text("KEY", key, "the value, as --set names it; without it, all keys there are", "");
  options.flag("--json", json, "prints the steps as JSON");
  options.flag("--keys", keys, "prints all keys, one a line");
  if (!options.parse(arguments)) return 0;
  const std::string file = options.file() == "-" ? kStandardInput : options.file();
  const std::string text = read_pipeline_text(options.file());
  const Registry registry = builtin_registry();
  if (keys || key.empty()) {
    std::string lines;
    for (const std::string& one : keys_of(text, file, registry, options.plan_options())) lines += one + "\n";
    Output().write(lines);
    return 0;
  }
  const std::vector<Explained> list = explain(text, file, registry, options.plan_options(), key);
  Output().write(json ? to_text(json_of(list)) + "\n" : text_of(list));
  return 0;
}

}  // namespace lanewise
