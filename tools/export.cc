// lanewise export: a trained model as one file, for other programs.
#include <fmt/format.h>

#include "nodes/builtin.h"
#include "runtime/report.h"
#include "runtime/safetensors.h"
#include "runtime/snapshot.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/trained_run.h"

namespace lanewise {

int export_command(const Arguments& arguments) {
  Options options(
      "export",
      "Writes a run's newest checkpoint as one safetensors file: the weights by their state-dict names, and as "
      "metadata the model with its parameters and each stream's normalisation (value seen by the model = (value - "
      "mean) / scale).",
      {"lanewise export runs/first --to model.safetensors"});
  std::string to;
  bool best = false;
  options.run_directory(/*changes=*/false);
  options.flag("--best", best, "the checkpoint with the best evaluation instead of the newest");
  options.text("--to", to, "the file to write", "FILE");
  if (!options.parse(arguments)) return 0;
  if (to.empty()) throw Error(Exit::kCommandLine, "lanewise export needs a file to write; name it with --to FILE");

  const Registry registry = builtin_registry();
  const Plans plans = plan_run(options.file(), {}, /*predict=*/false, registry);
  const Checkpoint checkpoint = checkpoint_of(options.file(), best);
  const nlohmann::ordered_json& pipeline = plans.train.expanded;
  nlohmann::ordered_json archives = nlohmann::ordered_json::object();  // of models that are code
  for (const auto& [name, file] : checkpoint.manifest.at("data").items()) {
    if (name.starts_with("models.")) archives[name] = file;
  }
  write_safetensors(to, checkpoint.weights,
                    {{"lanewise", version()},
                     {"step", fmt::format("{}", checkpoint.step)},
                     {"digest", plans.train.digest},
                     {"models", pipeline.at("models").dump()},
                     {"archives", archives.dump()},
                     {"normalization", checkpoint.manifest.at("normalization").dump()}});
  Output().write(fmt::format("{}: {} tensors of step {}\n", to, checkpoint.weights.size(), checkpoint.step));
  return 0;
}

}  // namespace lanewise
