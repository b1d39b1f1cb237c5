#include "tools/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/output.h"

namespace lanewise {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// B of the formula, with the nodes of one group free.
double bound(const std::vector<NodeWork>& nodes, double threads, const std::string* free) {
  double beside = 0, longest = 0, lanes = 0, after = 0, all = 0;
  for (const NodeWork& node : nodes) {
    if (free != nullptr && node.group == *free) continue;
    all += node.work;
    switch (node.place) {
      case NodeWork::Place::kBeside:
        beside = std::max(beside, node.pace);
        break;
      case NodeWork::Place::kLane:
        longest = std::max(longest, node.work);
        lanes += node.work;
        break;
      case NodeWork::Place::kAfterLanes:
        after += node.work;
    }
  }
  return std::max({beside, std::max(longest, lanes / threads) + after, all / threads});
}

Bottleneck of_group(const std::vector<NodeWork>& nodes, const std::string& name, int threads, double round) {
  Bottleneck b{.kind = Bottleneck::Kind::kNodes, .name = name, .threads = threads, .round = round};
  double work = 0, pace = -1;
  for (const NodeWork& node : nodes) {
    if (node.group != name) continue;
    ++b.nodes;
    work += node.work;
    if (node.pace <= pace) continue;
    pace = node.pace;
    b.busiest = node.id;
    b.waits = node.pace > 2 * node.work;
  }
  if (work / threads > pace) b.busiest = "";
  b.share = std::min(1.0, std::max(pace, work / threads) / round);
  return b;
}

}  // namespace

std::vector<Bottleneck> find_bottlenecks(const std::vector<NodeWork>& nodes, int threads, double round) {
  const double whole = bound(nodes, threads, nullptr), rest = std::max(0.0, round - whole);
  std::vector<Bottleneck> found;
  double work = 0;
  for (const NodeWork& node : nodes) {
    work += node.work;
    if (std::ranges::any_of(found, [&](const Bottleneck& b) { return b.name == node.group; })) continue;
    Bottleneck& b = found.emplace_back(of_group(nodes, node.group, threads, round));
    b.free = bound(nodes, threads, &node.group) + rest;
  }
  found.push_back({.kind = Bottleneck::Kind::kThreads,
                   .name = "threads",
                   .threads = threads,
                   .share = std::min(1.0, work / threads / round),
                   .round = round,
                   .free = bound(nodes, kUnbounded, nullptr) + rest});
  found.push_back(
      {.kind = Bottleneck::Kind::kRest, .name = "rest", .threads = threads, .share = rest / round, .round = round});
  found.back().free = std::min(round, whole);
  for (Bottleneck& b : found) b.free = std::min(b.free, round);
  std::ranges::stable_sort(found, {}, &Bottleneck::free);
  return found;
}

std::string microseconds(double us) {
  if (us >= 1000) return grouped(static_cast<std::uint64_t>(std::llround(us)));
  return fmt::format("{:.{}f}", us, us >= 100 ? 0 : us >= 10 ? 1 : 2);
}

std::string sentence(const Bottleneck& b) {
  const double share = 100 * b.share;
  std::string what, free;
  switch (b.kind) {
    case Bottleneck::Kind::kNodes:
      what = fmt::format("{} bounds a round: ", b.name);
      if (b.busiest.empty()) {
        what += fmt::format("its {} nodes take {:.0f} % of the threads' time", b.nodes, share);
      } else if (b.waits) {
        what += fmt::format("{} waits for its program or works {:.0f} % of the time", b.busiest, share);
      } else {
        what += fmt::format("{} is busy {:.0f} % of the time", b.busiest, share);
      }
      free = fmt::format("were {} free", b.name);
      break;
    case Bottleneck::Kind::kThreads:
      what =
          fmt::format("The {} a round: {:.0f} % of {} time is work",
                      b.threads == 1 ? "one thread bounds" : "threads bound", share, b.threads == 1 ? "its" : "their");
      free = "with threads to spare";
      break;
    case Bottleneck::Kind::kRest:
      what = fmt::format(
          "No node bounds a round: {:.0f} % of it go into handing over between threads, or to other programs on the "
          "machine",
          share);
      free = "without that";
  }
  return fmt::format("{}; {}, a round would take {} µs instead of {} ({:.1f} times as fast).", what, free,
                     microseconds(b.free), microseconds(b.round), b.times_as_fast());
}

}  // namespace lanewise
