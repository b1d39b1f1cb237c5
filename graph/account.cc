#include "graph/account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lanewise {
namespace {

constexpr std::size_t kNames = 3;     // nodes named in one line
constexpr std::size_t kClauses = 10;  // lines in one stall message

// "gen0", or "lane0.prediction" where the port is not the first.
std::string end_name(const PlanNode& node, int port, const std::vector<Port>& ports) {
  return port == 0 ? node.id : fmt::format("{}.{}", node.id, ports.at(port).name);
}

// "a", "a and b", "a, b, c and 5 more".
std::string list(const std::vector<std::string>& names) {
  if (names.size() == 2) return fmt::format("{} and {}", names[0], names[1]);
  if (names.size() <= kNames) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kNames, ", "), names.size() - kNames);
}

std::uint64_t count_samples(const Edge& edge, bool put) {
  const Edge::Counts c = edge.counts();
  if (put) return c.put - edge.from().ended();
  return c.taken - (edge.from().ended() && c.fill == 0);
}

double seconds(Tick t) { return static_cast<double>(t) * 1e-9; }

// How one stage waits. The lower the rank, the nearer to the cause: 0 waits for a node that has ended, 1 for one that
// has swallowed packets, 2 for another, 3 for room.
struct Wait {
  int rank;
  std::string line;
};

bool lacks_packet(const Stage& stage) {
  return std::any_of(stage.inputs().begin(), stage.inputs().end(), [](const Edge* e) { return e->fill() == 0; });
}
std::vector<std::string> full_outputs(const Stage& stage) {
  std::vector<std::string> to;
  for (const std::vector<Edge*>& edges : stage.outputs()) {
    for (const Edge* e : edges) {
      if (e->fill() == e->capacity()) to.push_back(e->to().plan().id);
    }
  }
  return to;
}

// It has fired with the end of one of its inputs, and need not have put anything then.
bool took_end(const Stage& stage) {
  return std::any_of(stage.inputs().begin(), stage.inputs().end(),
                     [](const Edge* e) { return e->from().ended() && e->fill() == 0; });
}

Wait starving(const Stage& stage) {
  int rank = 2;
  std::vector<std::string> lacking, holding;
  for (const Edge* e : stage.inputs()) {
    const Stage& from = e->from();
    const std::string& id = from.plan().id;
    if (e->fill() > 0) {
      holding.push_back(fmt::format("{} -> {} holds {} of {}", id, stage.plan().id, e->fill(), e->capacity()));
    } else if (from.ended()) {
      rank = 0;
      const bool samples = from.plan().type->role == Role::kSource || from.plan().type->role == Role::kPerSample;
      lacking.insert(lacking.begin(), fmt::format("{} (ended after {} {})", id, count_samples(*e, true),
                                                  samples ? "samples" : "packets"));
    } else if (const std::uint64_t put = e->counts().put; from.plan().type->role != Role::kJoin &&
                                                          !from.plan().type->fed &&
                                                          from.fired() > put + from.absorbed() + took_end(from)) {
      rank = std::min(rank, 1);
      lacking.insert(lacking.begin(), fmt::format("{} (fired {} times, put {})", id, from.fired(), put));
    } else {
      lacking.push_back(id);
    }
  }
  std::string line = fmt::format("{} waits for {}", stage.plan().id, list(lacking));
  if (!holding.empty()) line += "; " + holding.front();
  if (holding.size() > 1) line += fmt::format(" ({} more inputs hold packets)", holding.size() - 1);
  return {rank, line};
}

}  // namespace

std::vector<EdgeReport> report_edges(const Plan& plan, const std::deque<Edge>& edges) {
  std::vector<EdgeReport> reports;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const PlanEdge& e = plan.edges[i];
    const PlanNode &from = plan.nodes[e.from], &to = plan.nodes[e.to];
    const Edge::Counts c = edges[i].counts();
    reports.push_back({end_name(from, e.from_port, from.type->outputs), end_name(to, e.to_port, to.type->inputs),
                       e.capacity, c.deepest, c.put, c.taken, static_cast<std::uint64_t>(c.fill), seconds(c.starved),
                       seconds(c.blocked)});
  }
  return reports;
}

std::vector<NodeReport> report_nodes(const std::deque<Stage>& stages) {
  std::vector<NodeReport> reports;
  for (const Stage& stage : stages) {
    NodeReport& r = reports.emplace_back();
    r.id = stage.plan().id;
    r.type = stage.plan().type->name;
    r.fired = stage.fired();
    r.absorbed = stage.absorbed();
    r.ended = stage.ended();
    r.busy_s = seconds(stage.busy());
    r.starved_s = seconds(stage.starved());
    for (const Edge* e : stage.inputs()) r.starved_s += seconds(e->counts().starved);
    for (const std::vector<Edge*>& edges : stage.outputs()) {
      for (const Edge* e : edges) r.blocked_s += seconds(e->counts().blocked);
    }
    work_out_shares(r);
  }
  return reports;
}

void work_out_shares(NodeReport& node) {
  const double sum = node.busy_s + node.starved_s + node.blocked_s;
  const double part = node.fired == 0 || sum <= 0 ? 0 : 1 / sum;
  node.busy = node.busy_s * part;
  node.starved = node.starved_s * part;
  node.blocked = node.blocked_s * part;
}

std::vector<std::string> waiting_lines(const std::deque<Stage>& stages) {
  std::vector<Wait> waits;
  for (const Stage& stage : stages) {
    if (stage.ended()) continue;
    if (lacks_packet(stage)) {
      waits.push_back(starving(stage));
    } else if (const std::vector<std::string> full = full_outputs(stage); !full.empty()) {
      waits.push_back({3, fmt::format("{} is blocked by {}", stage.plan().id, list(full))});
    } else if (stage.hungry()) {
      waits.push_back({0, fmt::format("{} waits for what comes from outside", stage.plan().id)});
    }
  }
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
  std::vector<std::string> lines;
  for (Wait& wait : waits) lines.push_back(std::move(wait.line));
  return lines;
}

std::string stall_message(const std::vector<std::string>& lines) {
  const std::size_t shown = std::min(lines.size(), kClauses);
  std::string text = fmt::format("no progress: {}", fmt::join(lines.begin(), lines.begin() + shown, "; "));
  if (lines.size() > shown) text += fmt::format("; {} more nodes wait", lines.size() - shown);
  return text;
}

void check_accounts(const Plan& plan, const std::deque<Stage>& stages, const std::deque<Edge>& edges) {
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].consistent()) continue;
    const EdgeReport r = report_edges(plan, edges)[i];
    wrong.push_back(fmt::format("{} -> {}: {} put, {} taken, {} left, deepest {} of {}", r.from, r.to, r.put, r.taken,
                                r.left, r.deepest, r.capacity));
  }
  for (const Stage& stage : stages) {
    if (stage.plan().type->role != Role::kPerSample || stage.inputs().empty() || stage.outputs().empty()) continue;
    const std::uint64_t in = count_samples(*stage.inputs()[0], false);
    for (const Edge* e : stage.outputs()[0]) {
      const std::uint64_t out = count_samples(*e, true), held = stage.node().held();
      if (in == out + stage.absorbed() + held) continue;
      wrong.push_back(fmt::format("{}: {} samples in, {} out to {}, {} absorbed, {} held", stage.plan().id, in, out,
                                  e->to().plan().id, stage.absorbed(), held));
    }
  }
  if (wrong.empty()) return;
  const std::size_t more = wrong.size() > kClauses ? wrong.size() - kClauses : 0;
  wrong.resize(wrong.size() - more);
  throw Error(Exit::kInternal, fmt::format("accounts do not balance: {}{}", fmt::join(wrong, "; "),
                                           more > 0 ? fmt::format("; and {} more", more) : ""));
}

}  // namespace lanewise
