// lanewise predict: the model that a run has trained, on new streams.
#include "nodes/plugins.h"
#include "runtime/inference.h"
#include "runtime/output_file.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "tools/trained_run.h"

namespace lanewise {

int predict_command(const Arguments& arguments) {
  Options options(
      "predict",
      "Runs a run's newest checkpoint over streams and writes one prediction a sample as CSV, in order, in original "
      "units: phase,step,stream,run,seq,time,weight,y…,p…. --set names the streams; everything else is as in the "
      "training. The run directory is only read.",
      {"lanewise predict runs/first --set gen.rows=300: > predictions.csv",
       "lanewise predict runs/first --set gen0.path=new.csv --to predictions.csv"});
  std::string to;
  bool best = false;
  options.run_directory();
  options.flag("--best", best, "the checkpoint with the best evaluation instead of the newest");
  options.text("--to", to, "the file to write (default: standard output)", "FILE");
  if (!options.parse(arguments)) return 0;

  catch_stop_signals();
  const Registry registry = loading_registry();
  const Plans plans = plan_run(options.file(), options.overrides(), /*predict=*/true, registry);
  const Checkpoint checkpoint = checkpoint_of(options.file(), best);
  const InferenceOptions inference{
      .threads = static_cast<int>(plans.train.run.threads), .signal = stop_signal, .say = say_line};
  if (to.empty()) {
    Output output;
    predict_by_checkpoint(plans, checkpoint, inference,
                          [&](std::string_view lines) { output.write(std::string(lines)); });
  } else {
    OutputFile file(to);
    predict_by_checkpoint(plans, checkpoint, inference, [&](std::string_view lines) { file.write(lines); });
    file.close();
  }
  return 0;
}

}  // namespace lanewise
