// lanewise eval: evaluates the model that a run has trained.
#include "nodes/plugins.h"
#include "runtime/inference.h"
#include "runtime/report.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "tools/trained_run.h"

namespace lanewise {

int eval_command(const Arguments& arguments) {
  Options options(
      "eval",
      "Evaluates a run's newest checkpoint as its pipeline's \"evaluate\" says, or as --set changes it. The run "
      "directory is only read.",
      {"lanewise eval runs/first", "lanewise eval runs/first --best --set evaluate.set.gen.rows=330:"});
  bool quiet = false, json = false, best = false;
  options.run_directory();
  options.flag("--best", best, "the checkpoint with the best evaluation instead of the newest");
  options.flag("--json", json, "prints the whole result as JSON");
  options.flag("--quiet", quiet, "prints nothing but the result");
  if (!options.parse(arguments)) return 0;

  catch_stop_signals();
  const Registry registry = loading_registry();
  const Plans plans = plan_run(options.file(), options.overrides(), /*predict=*/false, registry);
  if (!plans.evaluate) {
    throw Error(Exit::kPipeline,
                "the run's pipeline says nothing of \"evaluate\"; say what to evaluate on, such as "
                "--set evaluate.set.gen.rows=300:");
  }
  const Checkpoint checkpoint = checkpoint_of(options.file(), best);
  if (!quiet) write_error(fmt::format("evaluating the checkpoint of step {}\n", checkpoint.step));
  const nlohmann::ordered_json result = evaluate_checkpoint(
      plans, checkpoint,
      {.threads = static_cast<int>(plans.train.run.threads), .signal = stop_signal, .say = say_line});
  Output().write(json ? to_text(result) + "\n"
                      : fmt::format("step {}: {}\n", checkpoint.step, evaluation_text(result)));
  return 0;
}

}  // namespace lanewise
