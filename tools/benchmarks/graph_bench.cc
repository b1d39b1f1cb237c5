// Benchmark of the graph alone: 16 -> 8 -> 8 -> 1 -> 1 with feedback and bodies that only hand packets on, from a
// pipeline file through Plan, Stage and Packet with bounds and counters on, against plain oneTBB nodes and edges that
// have neither.
//
//   graph_bench [--pipeline FILE] [--rounds N] [--repeats N] [--json [FILE]]
//
// Both contenders run in turns in one process, on two pinned threads, with the same packets and the same bodies.
// Prints a table; with --json writes the rows as JSON to FILE, or alone to standard output.
#include <fmt/format.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "graph/flow.h"
#include "graph/spec.h"
#include "tools/benchmarks/graph_nodes.h"

namespace lanewise::bench {
namespace {

constexpr int kThreads = 2, kLanes = 8, kStreams = 16;
constexpr std::int64_t kWork = 50;  // microseconds a lane

// Both return microseconds a round.
double run_flow(const std::string& pipeline, std::int64_t rounds, std::int64_t work_us) {
  const Registry registry = types();
  PlanOptions options;
  options.overrides = {{Override::Kind::kSet, fmt::format("gen.count={}", rounds)},
                       {Override::Kind::kSet, fmt::format("lane.us={}", work_us)}};
  const Plan plan = plan_file(pipeline, registry, options).train;
  Flow flow(plan, make_nodes(plan, Services()), {.threads = kThreads, .pin = true, .on_worker_start = {}});
  const double start = seconds_now();
  flow.run();
  const double us = (seconds_now() - start) * 1e6 / static_cast<double>(rounds);
  for (const NodeReport& n : flow.report().nodes) {
    const std::uint64_t want = static_cast<std::uint64_t>(rounds) + 1;  // the end too
    if (n.fired != want) throw Error(Exit::kInternal, fmt::format("{} fired {} times, not {}", n.id, n.fired, want));
  }
  return us;
}

// Keeps each thread of an arena on a core of its own.
class Pin final : public tbb::task_scheduler_observer {
 public:
  explicit Pin(tbb::task_arena& arena) : tbb::task_scheduler_observer(arena) { observe(true); }
  ~Pin() override { observe(false); }
  void on_scheduler_entry(bool) override {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(tbb::this_task_arena::current_thread_index(), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
};

// Plain oneTBB: queueing joins and serial nodes. Sources run ahead as far as they like.
double run_tbb_graph(std::int64_t rounds) {
  using tbb::flow::input_port, tbb::flow::make_edge, tbb::flow::serial;
  using Two = std::tuple<Packet, Packet>;
  tbb::flow::graph g;
  const auto first = [](const Two& in) { return std::get<0>(in); };
  std::deque<tbb::flow::input_node<Packet>> gen;
  std::deque<tbb::flow::join_node<Two, tbb::flow::queueing>> pair_in, lane_in;
  std::deque<tbb::flow::function_node<Two, Packet>> pair, lane;
  for (int i = 0; i < kStreams; ++i) {
    gen.emplace_back(g,
                     [rounds, k = std::int64_t{0}, token = Packet::of(Token{i})](tbb::flow_control& control) mutable {
                       if (k++ == rounds) control.stop();
                       return token;
                     });
  }
  for (int i = 0; i < kLanes; ++i) {
    pair_in.emplace_back(g);
    pair.emplace_back(g, serial, first);
    lane_in.emplace_back(g);
    lane.emplace_back(g, serial, first);
  }
  std::int64_t arrived = 0, steps = 0;
  tbb::flow::multifunction_node<Packet, std::tuple<Packet>> reduce(g, serial, [&arrived](const Packet& p, auto& ports) {
    if (++arrived % kLanes == 0) std::get<0>(ports).try_put(p);
  });
  const Packet weights = Packet::of(Token{-1});
  tbb::flow::function_node<Packet, Packet> opt(g, serial,
                                               [&steps, weights](const Packet&) { return ++steps, weights; });

  for (int i = 0; i < kLanes; ++i) {
    make_edge(gen[2 * i], input_port<0>(pair_in[i]));
    make_edge(gen[2 * i + 1], input_port<1>(pair_in[i]));
    make_edge(pair_in[i], pair[i]);
    make_edge(pair[i], input_port<0>(lane_in[i]));
    make_edge(opt, input_port<1>(lane_in[i]));
    make_edge(lane_in[i], lane[i]);
    make_edge(lane[i], reduce);
    input_port<1>(lane_in[i]).try_put(weights);
  }
  make_edge(tbb::flow::output_port<0>(reduce), opt);

  const double start = seconds_now();
  for (auto& source : gen) source.activate();
  g.wait_for_all();
  const double us = (seconds_now() - start) * 1e6 / static_cast<double>(rounds);
  if (steps != rounds)
    throw Error(Exit::kInternal, fmt::format("oneTBB's own nodes made {} steps of {}", steps, rounds));
  return us;
}

double run_tbb(std::int64_t rounds) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  double us = 0;
  {
    tbb::task_arena arena(kThreads);
    const Pin pin(arena);
    arena.execute([&] { us = run_tbb_graph(rounds); });
  }
  sched_setaffinity(0, sizeof before, &before);
  return us;
}

// reach 0: reported only.
nlohmann::ordered_json row(const std::string& name, const std::string& unit, std::vector<double> values, double reach) {
  std::sort(values.begin(), values.end());
  nlohmann::ordered_json r = {
      {"name", name},         {"unit", unit},     {"min", values.front()}, {"median", values[values.size() / 2]},
      {"max", values.back()}, {"reach", nullptr}, {"sense", nullptr}};
  if (reach > 0) r["reach"] = reach, r["sense"] = "<=";
  return r;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::ordered_json measure(const std::string& pipeline, std::int64_t rounds, int repeats) {
  const std::int64_t work_rounds = std::max<std::int64_t>(1, rounds / 20);
  const double ideal = static_cast<double>(kWork) * kLanes / kThreads;
  tbb::info::default_concurrency();  // counts the cores before any thread is pinned
  run_flow(pipeline, rounds / 4 + 1, 0);
  run_tbb(rounds / 4 + 1);
  std::vector<double> ours, raw, ratio, work;
  for (int i = 0; i < repeats; ++i) {
    ours.push_back(run_flow(pipeline, rounds, 0));
    raw.push_back(run_tbb(rounds));
    ratio.push_back(ours.back() / raw.back());
    work.push_back(run_flow(pipeline, work_rounds, kWork) / ideal);
  }
  nlohmann::ordered_json result;
  result["rows"] = {row("graph.round_us", "us", ours, 10), row("graph.raw_tbb_us", "us", raw, 0),
                    row("graph.over_raw_tbb", "ratio", ratio, 1.0), row("graph.work_over_ideal", "ratio", work, 1.1)};
  result["machine"] = {{"cores", std::thread::hardware_concurrency()}, {"cpu", cpu_name()}};
  return result;
}

void print_table(const nlohmann::ordered_json& result) {
  fmt::print("{:<22} {:>9} {:>9} {:>9}\n", "", "min", "median", "max");
  for (const auto& r : result["rows"]) {
    const double median = r["median"].get<double>();
    fmt::print("{:<22} {:>9.3f} {:>9.3f} {:>9.3f} {}", r["name"].get<std::string>(), r["min"].get<double>(), median,
               r["max"].get<double>(), r["unit"].get<std::string>());
    if (r["reach"].is_null()) {
      fmt::print("\n");
    } else {
      const double reach = r["reach"].get<double>();
      fmt::print("  <= {}: {}\n", reach, median <= reach ? "met" : "MISSED");
    }
  }
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--pipeline", "tools/benchmarks/graph.json"}, {"--rounds", "20000"}, {"--repeats", "9"}};
  bool json = false;
  std::string json_file;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool valued = i + 1 < argc && !std::string(argv[i + 1]).starts_with("--");
    if (name == "--json") {
      json = true;
      if (valued) json_file = argv[++i];
    } else if (options.count(name) == 1 && valued) {
      options[name] = argv[++i];
    } else {
      throw Error(Exit::kCommandLine,
                  "usage: graph_bench [--pipeline FILE] [--rounds N] [--repeats N] [--json [FILE]]");
    }
  }
  const auto result = measure(options["--pipeline"], std::stoll(options["--rounds"]), std::stoi(options["--repeats"]));
  if (json && json_file.empty()) {
    fmt::print("{}\n", result.dump(2));
    return 0;
  }
  print_table(result);
  if (!json) return 0;
  std::ofstream file(json_file);
  if (!(file << result.dump(2) << "\n").flush()) throw Error(Exit::kCommandLine, "cannot write " + json_file);
  return 0;
}

}  // namespace
}  // namespace lanewise::bench

int main(int argc, char** argv) {
  try {
    return lanewise::bench::run(argc, argv);
  } catch (const lanewise::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(e.exit());
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(lanewise::Exit::kInternal);
  }
}
