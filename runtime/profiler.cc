#include "runtime/profiler.h"

#include "graph/account.h"

namespace lanewise {
namespace {

constexpr double kWarmUp = 0.5;  // of a turn's length

double seconds(Tick t) { return static_cast<double>(t) * 1e-9; }

std::size_t reduction_of(const Plan& plan) {
  for (const int node : plan.with_role(Role::kReduce)) {
    if (plan.nodes[node].type->name == "allreduce") return static_cast<std::size_t>(node);
  }
  throw Error(Exit::kInternal, "a plan that trains has a reduction");
}

}  // namespace

std::vector<double> LaneTimes::forward_s() const {
  std::vector<double> all;
  for (const std::atomic<Tick>& one : forward_) all.push_back(seconds(one.load(std::memory_order_relaxed)));
  return all;
}

Profiler::Profiler(const Plan& plan, Length length)
    : length_(length), reduce_(reduction_of(plan)), lane_times_(plan.with_role(Role::kCompute).size()) {}

bool Profiler::after_step(std::uint64_t samples) {
  const Tick now = ticks();
  if (steps_++ == 0) begin_ = moment(now, samples);  // what the first step takes is none of the warm-up
  const std::uint64_t done = steps_ - begin_.steps;
  const double share = warm_ ? 1 : kWarmUp;
  const bool over = length_.steps ? static_cast<double>(done) >= share * static_cast<double>(*length_.steps)
                                  : done > 0 && seconds(now - begin_.at) >= share * length_.seconds;
  if (!over || complete()) return complete();
  Moment end = moment(now, samples);
  if (warm_) turns_.push_back(between(begin_, end));
  warm_ = true;
  begin_ = std::move(end);
  return complete();
}

Profiler::Moment Profiler::moment(Tick at, std::uint64_t samples) const {
  return {at, steps_, samples, flow_->report(), lane_times_.forward_s()};
}

Turn Profiler::between(const Moment& begin, const Moment& end) const {
  Turn turn{.seconds = seconds(end.at - begin.at),
            .steps = end.steps - begin.steps,
            .rounds = end.flow.nodes[reduce_].fired - begin.flow.nodes[reduce_].fired,
            .samples = end.samples - begin.samples,
            .nodes = end.flow.nodes,
            .edges = end.flow.edges,
            .forward_s = end.forward_s};
  for (std::size_t i = 0; i < turn.nodes.size(); ++i) {
    const NodeReport& before = begin.flow.nodes[i];
    NodeReport& node = turn.nodes[i];
    node.fired -= before.fired;
    node.absorbed -= before.absorbed;
    node.busy_s -= before.busy_s;
    node.starved_s -= before.starved_s;
    node.blocked_s -= before.blocked_s;
    work_out_shares(node);
  }
  for (std::size_t i = 0; i < turn.edges.size(); ++i) {
    turn.edges[i].starved_s -= begin.flow.edges[i].starved_s;
    turn.edges[i].blocked_s -= begin.flow.edges[i].blocked_s;
  }
  for (std::size_t i = 0; i < turn.forward_s.size(); ++i) turn.forward_s[i] -= begin.forward_s[i];
  return turn;
}

}  // namespace lanewise
