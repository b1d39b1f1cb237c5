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
  options.pipeline();
  options.picture("the evaluation's plan instead of the training's");
  if (!options.parse(arguments)) return 0;

  const Registry registry = builtin_registry();
  const Plans plans = options.plan(registry);
  const Plan& plan = options.chosen(plans, options.file(), "draw");
  const std::string& format = options.format();
  std::string text = format == "json" ? to_text(dump_json(plan)) : format == "dot" ? dump_dot(plan) : dump_text(plan);
  if (!text.ends_with('\n')) text += '\n';
  Output().write(text);
  return 0;
}

}  // namespace lanewise
