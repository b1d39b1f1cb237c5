// A Flow is a plan running: its nodes on a oneTBB flow graph, joined by bounded edges.
//
//   Flow flow(plan, nodes, {.threads = 2});
//   while (flow.run() == Flow::Outcome::kPaused) evaluate();
//
// The first exception in a node's body ends the flow and comes out of run(), with the node's id and firing in its
// message. A flow that goes idle with work left throws Error(kStall) saying who waits for whom. Accounts are checked at
// the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/node.h"
#include "graph/plan.h"

namespace lanewise {

struct FlowOptions {
  int threads = 1;
  bool pin = false;                       // each worker on a core of its own (for measuring)
  std::function<void()> on_worker_start;  // called by each thread, the caller too, whenever it comes to work
  // What an exception of a library says, without what only its authors need.
  std::function<std::string(const std::exception&)> tell = [](const std::exception& e) {
    return std::string(e.what());
  };
};

struct EdgeReport {
  std::string from, to;  // "gen0", "norm0"; with the port where it is not the first: "lane0.prediction"
  int capacity = 0, deepest = 0;
  std::uint64_t put = 0, taken = 0, left = 0;  // packets; the packet that marks the end counts in all three
  double starved_s = 0;                        // the consumer waited for this edge's packet
  double blocked_s = 0;                        // the producer waited for this edge's room
};

struct NodeReport {
  std::string id, type;
  std::uint64_t fired = 0, absorbed = 0;
  bool ended = false;
  double busy_s = 0, starved_s = 0, blocked_s = 0;
  double busy = 0, starved = 0, blocked = 0;  // shares that sum to one; all 0 for a node that never fired
};

struct FlowReport {
  std::vector<EdgeReport> edges;  // as in the plan
  std::vector<NodeReport> nodes;
  double seconds = 0;
};

class Flow {
 public:
  enum class Outcome { kDone, kPaused };

  // `nodes`: one a plan node, in the plan's order. The plan must outlive the flow.
  Flow(const Plan& plan, std::vector<std::unique_ptr<Node>> nodes, const FlowOptions& options);
  ~Flow();

  // Runs until the work is done or a node pauses. Called from one thread, which takes part, never from inside a body.
  // Done is: a node has said finish() and all is idle, or all sources have ended and no packet is left but on feedback
  // edges. Where a plan has unconnected parts, a pause or finish in one keeps back the sources of the others.
  Outcome run();

  // Ends the flow from another thread: run(), or the next one, throws Error(exit, why) after the firings in progress.
  void cancel(Exit exit, const std::string& why);

  // The counters, consistent with each other when the flow rests; may be called from any thread at any time.
  FlowReport report() const;
  // One line a node that cannot fire: what it waits for, and what is full.
  std::vector<std::string> waiting() const;
  // The ids of the nodes whose bodies are at work, or wait.
  std::vector<std::string> firing() const;
  // Those that wait for nothing but what comes from outside.
  std::vector<std::string> hungry() const;

  Node& node(int index);
  const Node& node(int index) const;
  // Visits the packets left on edges (edge index into the plan). Only while the flow rests.
  void for_each_left(const std::function<void(int edge, const Packet& packet)>& visit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes every node of a plan by its type.
std::vector<std::unique_ptr<Node>> make_nodes(const Plan& plan, const Services& services);

}  // namespace lanewise
