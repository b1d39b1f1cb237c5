// lanewise diff: what is different between two pipelines as they would run.
#include "graph/diff.h"

#include <fmt/format.h>

#include "nodes/builtin.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {

int diff_command(const Arguments& arguments) {
  Options options("diff",
                  "Says what is different between two pipelines as they would run: nodes by role that were added, "
                  "removed, rewired or have other parameters and shapes, models, settings, how many parameters. "
                  "Starts nothing.",
                  {"lanewise diff configs/flights16.json mine.json",
                   "lanewise diff configs/sines16.json --swap 'gen={\"type\":\"lorenz\"}'",
                   "lanewise diff a.json b.json --format dot | dot -Tsvg > diff.svg"});
  std::string other;
  options.pipeline();
  options.text("OTHER", other,
               "the pipeline file to compare it with, which --set and --swap change; without it, FILE with the changes",
               "");
  options.picture("compares the plans of the evaluation instead of the training's");
  if (!options.parse(arguments)) return 0;
  if (options.file() == "-" && (other.empty() || other == "-")) {
    throw Error(Exit::kCommandLine,
                "lanewise diff: standard input can be read once; give the other pipeline as a file");
  }

  const Registry registry = builtin_registry();
  PlanOptions changed = options.plan_options(), plain = changed;
  std::erase_if(plain.overrides, [](const Override& one) { return one.kind != Override::Kind::kPlugin; });
  const std::string second = other.empty() ? options.file() : other;
  const Plans before = plan_file(options.file(), registry, plain), now = plan_file(second, registry, changed);
  const Plan &a = options.chosen(before, options.file(), "compare"), &b = options.chosen(now, second, "compare");
  const PlanDiff diff = diff_plans(a, b);
  const std::string& format = options.format();
  Output().write(format == "json"  ? to_text(diff_json(diff)) + "\n"
                 : format == "dot" ? diff_dot(a, b, diff)
                                   : diff_text(diff));
  return 0;
}

}  // namespace lanewise
