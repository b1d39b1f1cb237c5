#include "tools/training.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "graph/diff.h"
#include "nodes/process.h"
#include "runtime/device.h"
#include "runtime/lane_table.h"
#include "runtime/report.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "tools/summary.h"

namespace lanewise {

namespace {

// Before messages, where there are several processes.
std::string speaker(const World* world) { return world == nullptr ? "" : fmt::format("rank {}: ", world->rank()); }

// One line a difference.
std::string agreement_difference(const std::string& first, const std::string& other) {
  const auto a = nlohmann::ordered_json::parse(first), b = nlohmann::ordered_json::parse(other);
  std::vector<std::string> lines;
  for (const char* const word : {"program", "processor", "command", "processes", "one_host"}) {
    if (a.at(word) != b.at(word))
      lines.push_back(fmt::format("{}: {} -> {}", word, a.at(word).dump(), b.at(word).dump()));
  }
  for (const char* const plan : {"pipeline", "evaluation"}) {
    if (a.at(plan).is_object() && b.at(plan).is_object()) {
      for (const std::string& line : plan_differences(a.at(plan), b.at(plan))) lines.push_back(line);
    } else if (a.at(plan).is_object() != b.at(plan).is_object()) {
      lines.push_back(fmt::format("{}: one of them has none", plan));
    }
  }
  std::ranges::sort(lines);
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return fmt::format("{}", fmt::join(lines, "\n  "));
}

// What can be cut into parts for so many processes.
void check_parts(const Plan& train, int processes) {
  if (const std::size_t lanes = train.with_role(Role::kCompute).size(); static_cast<std::size_t>(processes) > lanes) {
    throw Error(
        Exit::kCommandLine,
        lanes == train.lane_count()
            ? fmt::format("there are {} processes for {} lanes; start one a lane at most", processes, lanes)
            : fmt::format(
                  "there are {} processes, and the lanes are {} batches ({}); give run.fuse as many as there are "
                  "processes, or off",
                  processes, lanes, train.fusion));
  }
  for (const PlanNode& node : train.nodes) {
    if (node.type->role != Role::kSink) continue;
    const PlanNode& above = train.nodes[train.edges[node.inputs.front()].from];
    if (above.type->role == Role::kOptimizer) continue;
    throw Error(
        Exit::kPipeline,
        fmt::format("{} ({}) takes what comes from {}, and would see only a part of it in each of {} processes; "
                    "leave it out, or run in one process",
                    node.id, node.type->name, above.id, processes));
  }
}

// Ends the process, when it comes to that, without what libraries do then.
void end_without_farewell(int code) {
  static int kept = 0;
  kept = code;
  std::atexit([] { std::_Exit(kept); });
}

}  // namespace

std::chrono::milliseconds as_time(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

std::unique_ptr<World> meet_processes(const Plans& plans, const std::string& command, double timeout_s) {
  const std::optional<ProcessPlace> place = process_place();
  if (!place) return nullptr;
  const LaneTable lanes(plans.train, StreamTable(plans.train), place->rank, place->size);
  JoinOptions options;
  options.timeout = as_time(timeout_s);
  options.agreement =
      nlohmann::ordered_json({{"program", versions()},
                              {"processor", at::get_cpu_capability()},  // whose kernels step the weights
                              {"command", command},
                              {"processes", place->size},
                              {"one_host", place->one_host},  // LOCAL_WORLD_SIZE is WORLD_SIZE
                              {"pipeline", plans.train.expanded},
                              {"evaluation", plans.evaluate ? plans.evaluate->expanded : nullptr}})
          .dump();
  options.difference = agreement_difference;
  options.signal = stop_signal;
  for (int r = 0; r < place->size; ++r) options.processes.push_back(lanes.process_text(r));
  try {
    return join_world(*place, options);
  } catch (const Error& error) {
    throw Error(error.exit(), fmt::format("rank {}: {}", place->rank, error.what()));
  }
}

Plans plan_for_all(const std::function<Plans()>& make, double timeout_s) {
  const std::optional<ProcessPlace> place = process_place();
  try {
    Plans plans = make();
    if (const std::string why = device_refusal(plans.train); !why.empty()) throw Error(Exit::kDevice, why);
    load_device_library(plans.train);
    if (place) check_parts(plans.train, place->size);
    return plans;
  } catch (const Error& error) {
    if (!place) throw;
    const std::string reason = fmt::format("rank {}: {}", place->rank, error.what());
    JoinOptions options;
    options.timeout = as_time(timeout_s);
    options.signal = stop_signal;
    tell_absence(*place, options, error.exit(), reason);
    throw Error(error.exit(), reason);
  }
}

Plans plan_to_train(const Options& options, const Registry& registry, double timeout_s,
                    const std::vector<Override>& more) {
  return plan_for_all(
      [&] {
        Plans first = options.plan(registry, more);
        const std::vector<Override> shapes = ask_for_shapes(first.train, [] { return stop_signal() != 0; });
        return shapes.empty() ? std::move(first) : plan_again(first.source, shapes, registry);
      },
      timeout_s);
}

Plans plan_again(const PlanSource& source, const std::vector<Override>& more, const Registry& registry) {
  PlanOptions options{.overrides = source.overrides,
                      .gpus = source.gpus,
                      .hosts = source.hosts,
                      .cores = usable_cores(),
                      .bases = source.bases};
  options.overrides.insert(options.overrides.end(), more.begin(), more.end());
  return plan_pipeline(source.text, source.file, registry, options);
}

void add_peer_timeout(Options& options, std::string& text) {
  options.text("--peer-timeout", text, "how long another process, or a GPU, may be late or silent (60)", "SECONDS");
}

double peer_timeout(const std::string& text) { return read_seconds("--peer-timeout", text, 60); }

nlohmann::ordered_json train_here(Plans plans, RunOptions options) {
  catch_status_signal();
  options.terminal = error_is_terminal();
  options.signal = stop_signal;
  options.status_wanted = status_wanted;
  options.say = [by = options.world != nullptr && !options.world->first() ? speaker(options.world) : ""](
                    const std::string& line) { say_line(by + line); };
  options.draw = write_terminal;
  auto trainer = std::make_unique<Trainer>(std::move(plans), std::move(options));
  nlohmann::ordered_json report = trainer->run();
  const int code = report.at("exit");
  if (report.contains("devices") &&
      (code == static_cast<int>(Exit::kPeer) || code == static_cast<int>(Exit::kDevice))) {
    // To take down what is on a GPU that hangs could take for ever.
    (void)trainer.release();
    end_without_farewell(code);
  }
  return report;
}

int train_and_tell(Plans plans, RunOptions options, bool json) {
  const std::string directory = options.directory;
  const World* const world = options.world;
  const nlohmann::ordered_json report = train_here(std::move(plans), std::move(options));
  const int code = report.at("exit");
  if (code != 0) write_error("error: " + speaker(world) + report.at("reason").get<std::string>() + "\n");
  if (world != nullptr && !world->first()) return code;
  try {
    if (json) {
      Output().write(to_text(report) + "\n");
    } else if (!report.contains("begun")) {
      Output().write(summary(report, directory));
    }
  } catch (const Error& error) {
    if (code == 0) throw;
    say_line(std::string("warning: ") + error.what());  // how the run has ended is the news
  }
  return code;
}

}  // namespace lanewise
