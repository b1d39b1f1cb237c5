// What `run`, `resume` and `bench` do alike: train, say how it went, and end with what came of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/spec.h"
#include "runtime/trainer.h"
#include "runtime/world.h"
#include "tools/options.h"

namespace lanewise {

// The processes that this one trains together with, as the environment tells; null where it is alone. `command`: what
// they are to do, the same in all of them. Throws Error(kCommandLine) or Error(kPeer).
std::unique_ptr<World> meet_processes(const Plans& plans, const std::string& command, double timeout_s);

// Plans with `make` what can run here; should that fail where there are several processes, the others hear of it.
Plans plan_for_all(const std::function<Plans()>& make, double timeout_s);

// Plans the pipeline that a command line names with what can run here, as above; programs of process sources are asked
// for the shapes of their samples. `more`: settings behind those of the command line.
Plans plan_to_train(const Options& options, const Registry& registry, double timeout_s,
                    const std::vector<Override>& more = {});

// Plans what was planned before with more settings behind its own; reads no pipeline file.
Plans plan_again(const PlanSource& source, const std::vector<Override>& more, const Registry& registry);

// Adds "--peer-timeout" to a command that trains.
void add_peer_timeout(Options& options, std::string& text);
// Its value in seconds. Throws Error(kCommandLine).
double peer_timeout(const std::string& text);
// In whole milliseconds.
std::chrono::milliseconds as_time(double seconds);

// Trains with this process's signals and standard error. The report.
nlohmann::ordered_json train_here(Plans plans, RunOptions options);

// The same; prints the report as a summary, or as JSON. The exit code.
int train_and_tell(Plans plans, RunOptions options, bool json);

}  // namespace lanewise
