// lanewise resume: goes on with a run that was stopped or killed, as if it had never been interrupted.
#include "nodes/plugins.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/trained_run.h"
#include "tools/training.h"

namespace lanewise {

int resume_command(const Arguments& arguments) {
  Options options(
      "resume",
      "Goes on with the run in a directory from its newest valid checkpoint, bit for bit as if it had never been "
      "interrupted; without one, from step 0. What the run wrote after the checkpoint is cut and written again.",
      {"lanewise resume runs/first", "lanewise resume runs/first --set run.passes=10"});
  std::string timeout;
  bool quiet = false, json = false, pin = false;
  options.run_directory();
  options.flag("--quiet", quiet, "no progress; errors and the summary only");
  options.flag("--json", json, "prints the report on standard output, and nothing else there");
  options.flag("--pin", pin, "keeps each worker on a core of its own, for measuring");
  add_peer_timeout(options, timeout);
  if (!options.parse(arguments)) return 0;

  catch_stop_signals();
  const Registry registry = loading_registry();  // outlives the plans, whose nodes point into it
  const double timeout_s = peer_timeout(timeout);
  Plans plans = plan_for_all([&] { return plan_run(options.file(), options.overrides(), /*predict=*/false, registry); },
                             timeout_s);
  const std::unique_ptr<World> world = meet_processes(plans, "resume", timeout_s);
  return train_and_tell(std::move(plans),
                        {.directory = options.file(),
                         .resume = true,
                         .quiet = quiet,
                         .pin = pin,
                         .peer_timeout = as_time(timeout_s),
                         .world = world.get()},
                        json);
}

}  // namespace lanewise
