#include "tools/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tools/bottleneck.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 5> kParts = {"wait", "forward", "backward", "reduce", "optimize"};

bool on_gpus(const Plan& plan) {
  return std::ranges::any_of(plan.with_role(Role::kCompute),
                             [&](int lane) { return plan.nodes[lane].gpu().has_value(); });
}

// The turn whose rounds took neither the shortest nor the longest time.
const Turn& median_turn(const std::vector<Turn>& turns) {
  std::vector<const Turn*> sorted;
  for (const Turn& turn : turns) sorted.push_back(&turn);
  std::ranges::sort(sorted, {}, [](const Turn* t) { return t->seconds / static_cast<double>(t->rounds); });
  return *sorted[(sorted.size() - 1) / 2];
}

// What the nodes of a turn do in a round, in µs.
class Round {
 public:
  Round(const Plan& plan, const Turn& turn) : plan_(plan), turn_(turn) {}

  double us() const { return a_round(turn_.seconds); }
  double work(std::size_t node) const { return a_round(turn_.nodes[node].busy_s); }
  // A wait is counted when it ends, and may have begun before the turn.
  double pace(std::size_t node) const {
    const bool fed = plan_.nodes[node].type->fed;
    return fed ? std::min(us(), work(node) + a_round(turn_.nodes[node].starved_s)) : work(node);
  }
  double forward(std::size_t lane) const { return a_round(turn_.forward_s[lane]); }
  double work(Role role) const {
    double sum = 0;
    for (const int node : plan_.with_role(role)) sum += work(static_cast<std::size_t>(node));
    return sum;
  }

  // Of all that feeds a lane with samples.
  double generate(int lane) const {
    std::set<int> above;
    collect(lane, above);
    double sum = 0;
    for (const int node : above) sum += work(static_cast<std::size_t>(node));
    return sum;
  }

 private:
  double a_round(double seconds) const { return 1e6 * seconds / static_cast<double>(turn_.rounds); }

  void collect(int node, std::set<int>& above) const {
    for (const int e : plan_.nodes[node].inputs) {
      const PlanEdge& edge = plan_.edges[e];
      if (edge.initial == 0 && above.insert(edge.from).second) collect(edge.from, above);
    }
  }

  const Plan& plan_;
  const Turn& turn_;
};

std::vector<NodeWork> works_of(const Plan& plan, const Round& round) {
  const std::string gpus =
      on_gpus(plan) ? "what the GPUs do" : "";  // the host cannot tell lanes, reduction, step apart
  std::vector<NodeWork> works;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    const Role role = node.type->role;
    NodeWork& work = works.emplace_back(NodeWork{.id = node.id, .group = node.base});
    if (role == Role::kCompute) work.place = NodeWork::Place::kLane;
    if (role == Role::kReduce || role == Role::kOptimizer) work.place = NodeWork::Place::kAfterLanes;
    if (work.place != NodeWork::Place::kBeside && !gpus.empty()) work.group = gpus;
    work.work = round.work(i);
    work.pace = round.pace(i);
  }
  return works;
}

// The parts of a lane's round, which follow each other and add up to it, and what is generated for it meanwhile.
Json lane_json(const Plan& plan, const Round& round, int node, std::size_t lane) {
  const PlanNode& own = plan.nodes[node];
  const double work = round.work(static_cast<std::size_t>(node)), forward = round.forward(lane);
  Json us = {{"wait", 0.0},
             {"forward", forward},
             {"backward", work - forward},
             {"reduce", round.work(Role::kReduce)},
             {"optimize", round.work(Role::kOptimizer)}};
  double all = 0;
  for (const char* const part : kParts) all += us[part].get<double>();
  us["wait"] = std::max(0.0, round.us() - all);
  all = std::max(all, round.us());
  Json share = Json::object(), lanes = Json::array();
  for (const char* const part : kParts) share[part] = us[part].get<double>() / all;
  for (const FusedLane& part : own.fused) lanes.push_back(part.id);
  Json json = {{"id", own.id}, {"device", own.device}};
  if (!lanes.empty()) json["lanes"] = lanes;
  json["us"] = us;
  json["share"] = share;
  json["generate_us"] = round.generate(node);
  return json;
}

// Shares of the turn. What is left over the node was ready and waited for a thread. A wait that began before the turn
// can make more than a whole.
Json node_json(const PlanNode& node, const NodeReport& report, double seconds, double work) {
  const double counted = report.busy_s + report.starved_s + report.blocked_s, all = std::max(seconds, counted);
  return {{"id", node.id},
          {"base", node.base},
          {"type", node.type->name},
          {"us", work},
          {"busy", report.busy_s / all},
          {"starved", report.starved_s / all},
          {"blocked", report.blocked_s / all},
          {"ready", (all - counted) / all}};
}

std::string percent(const Json& share) { return fmt::format("{:.0f} %", 100 * share.get<double>()); }

std::string number(const Json& value) {
  const double v = value.get<double>();
  return v >= 1000 ? grouped(static_cast<std::uint64_t>(v + 0.5)) : short_number(v);
}

std::string range(const Json& spread) {
  return fmt::format("{} ({} to {})", number(spread.at("median")), number(spread.at("min")), number(spread.at("max")));
}

std::string lanes_table(const Json& lanes) {
  std::vector<std::vector<std::string>> rows = {{"a round of"}};
  for (const char* const part : kParts) rows[0].emplace_back(part);
  rows[0].emplace_back("beside it: generate");
  for (const Json& lane : lanes) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(fmt::format("{} ({})", lane.at("id").get<std::string>(), lane.at("device").get<std::string>()));
    for (const char* const part : kParts) {
      row.push_back(fmt::format("{} µs, {}", microseconds(lane.at("us").at(part).get<double>()),
                                percent(lane.at("share").at(part))));
    }
    row.push_back(microseconds(lane.at("generate_us").get<double>()) + " µs");
  }
  return columns(rows, "");
}

// A line for all instances of a node: what they do together, and the shares of the busiest.
std::string nodes_table(const Json& nodes) {
  struct Group {
    int count = 0;
    double us = 0;
    const Json* busiest = nullptr;
  };
  std::vector<std::pair<std::string, Group>> groups;
  for (const Json& node : nodes) {
    const std::string base = node.at("base");
    auto known = std::ranges::find(groups, base, &std::pair<std::string, Group>::first);
    if (known == groups.end()) known = groups.insert(known, {base, Group()});
    Group& group = known->second;
    ++group.count;
    group.us += node.at("us").get<double>();
    if (group.busiest == nullptr || node.at("busy").get<double>() > group.busiest->at("busy").get<double>())
      group.busiest = &node;
  }
  std::vector<std::vector<std::string>> rows = {{"nodes", "work a round", "busiest", "busy", "starved", "blocked", "ready"}};
  for (const auto& [base, group] : groups) {
    const Json& node = *group.busiest;
    rows.push_back({group.count == 1 ? base : fmt::format("{} ({})", base, group.count), microseconds(group.us) + " µs",
                    node.at("id").get<std::string>(), percent(node.at("busy")), percent(node.at("starved")),
                    percent(node.at("blocked")), percent(node.at("ready"))});
  }
  return columns(rows, "");
}

std::string trial_text(const Json& trial) {
  const std::string speeds =
      fmt::format("{} steps/s instead of {}", range(trial.at("with")), range(trial.at("before")));
  const std::string change = trial.at("change");
  if (!trial.at("faster").get<bool>())
    return fmt::format("tried {}, not faster beyond the noise: {}\n", change, speeds);
  return fmt::format("faster with {}: {}\n", trial.at("write").get<std::string>(), speeds);
}

}  // namespace

nlohmann::ordered_json spread(std::vector<double> values) {
  std::ranges::sort(values);
  return {{"min", values.front()}, {"median", values[(values.size() - 1) / 2]}, {"max", values.back()}};
}

std::vector<double> steps_per_second(const std::vector<Turn>& turns) {
  std::vector<double> all;
  for (const Turn& turn : turns) all.push_back(static_cast<double>(turn.steps) / turn.seconds);
  return all;
}

nlohmann::ordered_json bench_report(const Plan& plan, const std::vector<Turn>& turns, int threads) {
  std::vector<double> rounds, samples;
  for (const Turn& turn : turns) {
    rounds.push_back(1e6 * turn.seconds / static_cast<double>(turn.rounds));
    samples.push_back(static_cast<double>(turn.samples) / turn.seconds);
  }
  const Turn& turn = median_turn(turns);
  const Round round(plan, turn);
  Json report = {{"name", plan.name},
                 {"digest", plan.digest},
                 {"threads", threads},
                 {"turns", turns.size()},
                 {"turn_seconds", turn.seconds},
                 {"gpus", on_gpus(plan)},
                 {"round_us", spread(rounds)},
                 {"steps_per_second", spread(steps_per_second(turns))},
                 {"samples_per_second", spread(samples)}};
  const std::vector<int> lanes = plan.with_role(Role::kCompute);
  for (std::size_t l = 0; l < lanes.size(); ++l) report["lanes"].push_back(lane_json(plan, round, lanes[l], l));
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    report["nodes"].push_back(node_json(plan.nodes[i], turn.nodes[i], turn.seconds, round.work(i)));
  const std::vector<Bottleneck> all = find_bottlenecks(works_of(plan, round), threads, round.us());
  const Bottleneck& first = all.front();
  report["bottleneck"] = {
      {"name", first.name},         {"busiest", first.busiest.empty() ? Json() : Json(first.busiest)},
      {"share", first.share},       {"round_us", first.round},
      {"free_us", first.free},      {"times_as_fast", first.times_as_fast()},
      {"sentence", sentence(first)}};
  for (const Bottleneck& b : all) report["free_us"][b.name] = b.free;
  report["trials"] = Json::array();
  return report;
}

nlohmann::ordered_json trial_json(const Trial& trial) {
  return {{"change", trial.change},
          {"write", trial.write},
          {"before", spread(trial.before)},
          {"with", spread(trial.with)},
          {"faster", std::ranges::min(trial.with) > std::ranges::max(trial.before)}};
}

std::string bench_text(const nlohmann::ordered_json& report) {
  std::string text =
      columns({{"round", range(report.at("round_us")) + " µs"},
               {"speed", fmt::format("{} steps/s, {} samples/s", range(report.at("steps_per_second")),
                                     range(report.at("samples_per_second")))},
               {"measured", fmt::format("{} turns of {:.2g} s after a warm-up, {} thread{}; below is the median turn",
                                        report.at("turns").get<int>(), report.at("turn_seconds").get<double>(),
                                        report.at("threads").get<int>(), report.at("threads") == 1 ? "" : "s")}},
              "");
  text += "\n" + lanes_table(report.at("lanes"));
  if (report.at("gpus").get<bool>()) {
    text +=
        "These are times of the host: `backward` issues the forward, too, and what the host waits for a GPU counts to "
        "`optimize`.\n";
  }
  text += "\n" + nodes_table(report.at("nodes"));
  text += "\n" + report.at("bottleneck").at("sentence").get<std::string>() + "\n";
  for (const Json& trial : report.at("trials")) text += trial_text(trial);
  return text;
}

}  // namespace lanewise
