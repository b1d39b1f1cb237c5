// lanewise bench: measures a pipeline as it runs, says where a round goes and what bounds it, and tries what may help.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "nodes/plugins.h"
#include "runtime/world.h"
#include "tools/bench_report.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/signals.h"
#include "tools/training.h"

namespace lanewise {
namespace {

constexpr int kTurns = 5, kTrialTurns = 3;
constexpr double kSeconds = 3;         // of all turns
constexpr double kWorthATrial = 0.05;  // of a round
constexpr double kBothWait = 0.05;     // of the time: an edge whose two ends wait for each other by turns is short
constexpr std::uint64_t kMostSteps = 1'000'000'000;

// How long the pipeline would run is of no account here: streams that end begin again.
std::vector<Override> endless() {
  std::vector<Override> sets;
  for (const char* const set :
       {"run.steps=1000000000000", "run.passes=1000000000", "run.minutes=1e7", "run.on_end=restart"})
    sets.push_back({Override::Kind::kSet, set});
  return sets;
}

std::optional<std::uint64_t> read_steps(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::uint64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error == std::errc{} && end == text.data() + text.size() && steps >= 1 && steps <= kMostSteps) return steps;
  throw Error(Exit::kCommandLine,
              fmt::format("--steps takes a number of steps from 1 to {}, not \"{}\"", kMostSteps, text));
}

struct Measured {
  std::vector<Turn> turns;
  int threads = 1;
};

// Trains for so many turns, and leaves nothing behind. Throws what the training ends with, when it ends by itself.
Measured measure(Plans plans, const Profiler::Length& length, bool pin, double timeout_s) {
  plans.evaluate.reset();
  plans.train.notes.clear();
  Profiler profiler(plans.train, length);
  const nlohmann::ordered_json report = train_here(
      std::move(plans),
      {.directory = "", .quiet = true, .pin = pin, .peer_timeout = as_time(timeout_s), .profiler = &profiler});
  const std::string reason = report.at("reason");
  if (report.at("exit") != 0) throw Error(static_cast<Exit>(report.at("exit").get<int>()), reason);
  if (!profiler.complete()) {
    throw Error(Exit::kData, fmt::format("{}, before the measurement was over ({} of {} turns); let its on_end be "
                                         "restart, or measure for fewer --steps or --seconds",
                                         reason, profiler.turns().size(), length.turns));
  }
  return {profiler.turns(), report.at("threads")};
}

// A change of the plans, to be measured.
struct Change {
  Plans plans;
  std::string what, write;
};

// Lanes one by one as batches on as many threads as there are, where they can be.
std::optional<Change> fused(const Registry& registry, const Plans& plans, int threads) {
  const std::vector<int> nodes = plans.train.with_role(Role::kCompute);
  const auto is_single = [&](int node) {
    return !plans.train.nodes[node].gpu() && plans.train.nodes[node].fused.empty();
  };
  if (nodes.size() < 2 || !std::ranges::all_of(nodes, is_single)) return std::nullopt;
  const std::size_t groups = static_cast<std::size_t>(threads) < nodes.size() ? static_cast<std::size_t>(threads) : 1;
  const std::string set = fmt::format("run.fuse={}", groups);
  Change change{plan_again(plans.source, {{Override::Kind::kSet, set}}, registry), set,
                fmt::format("\"fuse\": {} in \"run\"", groups)};
  if (change.plans.train.with_role(Role::kCompute).size() == nodes.size()) return std::nullopt;
  return change;
}

// Whether lanes that took no time would save what is worth a trial.
bool lanes_matter(const nlohmann::ordered_json& report, const Plan& plan) {
  const std::string& lane = plan.nodes[plan.with_role(Role::kCompute).front()].base;
  const double round = report.at("bottleneck").at("round_us");
  return report.at("free_us").value(lane, round) < (1 - kWorthATrial) * round;
}

// Twice the capacity of the edges whose two ends wait for each other by turns, where there are any.
std::optional<Change> roomier(const Plans& plans, const std::vector<Turn>& turns) {
  struct Waits {
    std::vector<std::size_t> edges;
    double starved = 0, blocked = 0;
    double share(double seconds) const {
      return std::min(starved, blocked) / seconds / static_cast<double>(edges.size());
    }
  };
  std::map<std::pair<std::string, std::string>, Waits> groups;  // by the ids of the file, from and to
  double seconds = 0;
  for (const Turn& turn : turns) seconds += turn.seconds;
  const Plan& train = plans.train;
  for (std::size_t e = 0; e < train.edges.size(); ++e) {
    const PlanEdge& edge = train.edges[e];
    const PlanNode &from = train.nodes[edge.from], &to = train.nodes[edge.to];
    const std::string& carries = from.type->outputs[edge.from_port].carries;
    if ((carries != "sample" && carries != "batch") || from.type->internal) continue;
    const std::string consumer = to.type->internal ? train.nodes[train.edges[to.outputs[0][0]].to].base : to.base;
    Waits& waits = groups[{from.base, consumer}];
    waits.edges.push_back(e);
    for (const Turn& turn : turns) {
      waits.starved += turn.edges[e].starved_s;
      waits.blocked += turn.edges[e].blocked_s;
    }
  }
  const auto most =
      std::ranges::max_element(groups, {}, [&](const auto& group) { return group.second.share(seconds); });
  if (most == groups.end() || most->second.share(seconds) < kBothWait) return std::nullopt;
  const auto& [from, to] = most->first;
  Change change{plans, "", ""};
  int capacity = 0;
  for (const std::size_t e : most->second.edges) capacity = change.plans.train.edges[e].capacity *= 2;
  change.what = fmt::format("a capacity of {} from {} to {}", capacity, from, to);
  change.write = fmt::format("\"capacity\": {} beside \"from\": \"{}\" in {}", capacity, from, to);
  return change;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  Options options(
      "bench",
      "Runs a pipeline for a while, says where its rounds go, lane by lane, and what bounds them, and tries "
      "whether fused lanes or larger capacities make it faster. Nothing is saved, and nothing evaluated; "
      "streams that end begin again.",
      {"lanewise bench configs/flights16.json", "lanewise bench configs/sines16.json --set run.threads=4",
       "lanewise bench configs/minimal.json --steps 500 --json > bench.json"});
  std::string steps_text, seconds_text, timeout;
  bool json = false, pin = false;
  options.pipeline();
  options.text("--steps", steps_text, "how much to measure, in steps", "N");
  options.text("--seconds", seconds_text, fmt::format("the same in seconds ({})", kSeconds), "S");
  add_peer_timeout(options, timeout);
  options.flag("--json", json, "prints all figures, as README.md says");
  options.flag("--pin", pin, "keeps each worker on a core of its own");
  if (!options.parse(arguments)) return 0;
  if (!steps_text.empty() && !seconds_text.empty())
    throw Error(Exit::kCommandLine, "--steps and --seconds both say how much to measure; give one of them");
  const std::optional<std::uint64_t> steps = read_steps(steps_text);
  const double seconds = read_seconds("--seconds", seconds_text, kSeconds), timeout_s = peer_timeout(timeout);
  if (process_place()) {
    throw Error(Exit::kCommandLine,
                "lanewise bench measures one process, and the environment (WORLD_SIZE) says that there are several; "
                "start it without torchrun");
  }

  catch_stop_signals();
  const Registry registry = loading_registry();  // outlives the plans, whose nodes point into it
  const Plans plans = plan_to_train(options, registry, timeout_s, endless());
  Profiler::Length length{.seconds = seconds / kTurns, .turns = kTurns};
  if (steps) length.steps = (*steps + kTurns - 1) / kTurns;
  const Measured as_it_is = measure(plans, length, pin, timeout_s);

  nlohmann::ordered_json report = bench_report(plans.train, as_it_is.turns, as_it_is.threads);

  std::vector<std::optional<Change>> changes = {roomier(plans, as_it_is.turns)};
  if (lanes_matter(report, plans.train)) changes.push_back(fused(registry, plans, as_it_is.threads));
  length.turns = 1;
  for (const std::optional<Change>& change : changes) {
    if (!change) continue;
    say_line(fmt::format("trying {}, in turns with the pipeline as it is", change->what));
    Trial trial{.change = change->what, .write = change->write, .before = {}, .with = {}};
    for (int i = 0; i < kTrialTurns; ++i) {
      trial.before.push_back(steps_per_second(measure(plans, length, pin, timeout_s).turns).front());
      trial.with.push_back(steps_per_second(measure(change->plans, length, pin, timeout_s).turns).front());
    }
    report["trials"].push_back(trial_json(trial));
  }
  Output().write(json ? to_text(report) + "\n" : bench_text(report));
  return 0;
}

}  // namespace lanewise
