// lanewise graph: a pipeline as it would run, drawn.
#include "graph/dump.h"

#include <fmt/format.h>

#include "nodes/builtin.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {

int graph_command(const Arguments& arguments) {
  Options options(
      "graph", "Draws a pipeline as it would run: every node, every edge with its capacity and shapes. Starts nothing.",
      {"lanewise graph configs/sines16.json",
       "lanewise graph configs/sines16.json --format dot | dot -Tsvg > sines16.svg",
       "lanewise graph configs/flights16.json --evaluate",
       "lanewise graph configs/sines16.json --swap 'gen={\"type\":\"lorenz\"}'"});
  std::string format = "text";
  bool json = false, evaluate = false;
  options.pipeline();
  options.text("--format", format, "text, dot or json (default: text)", "FORMAT");
  options.flag("--json", json, "the same as --format json");
  options.flag("--evaluate", evaluate, "the evaluation's plan instead of the training's");
  if (!options.parse(arguments)) return 0;
  if (json) format = "json";
  options.one_of("--format", format, {"text", "dot", "json"});

  const Registry registry = builtin_registry();
  const Plans plans = options.plan(registry);
  if (evaluate && !plans.evaluate) {
    throw Error(
        Exit::kCommandLine,
        fmt::format("lanewise graph: {} has no \"evaluate\", so there is no plan of it to draw", options.file()));
  }
  const Plan& plan = evaluate ? *plans.evaluate : plans.train;
  std::string text = format == "json" ? to_text(dump_json(plan)) : format == "dot" ? dump_dot(plan) : dump_text(plan);
  if (!text.ends_with('\n')) text += '\n';
  Output().write(text);
  return 0;
}

}  // namespace lanewise
