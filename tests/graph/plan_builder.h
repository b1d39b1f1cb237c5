// Plans made by hand, with bodies given as functions: what the tests of edges, stages and flows run.
//
//   PlanBuilder b;
//   const int gen = b.source("gen", 100);
//   const int sink = b.node("sink", Role::kSink, 0, [](Firing& f) { … });
//   b.connect(gen, sink, {.capacity = 4});
//   Flow flow(b.plan, b.take_nodes(), {.threads = 2});
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/plan.h"

namespace lanewise {

// What travels in these tests: which stream, which sample of it.
struct Token {
  int stream = 0;
  std::int64_t seq = 0;
};
inline Packet token(int stream, std::int64_t seq) { return Packet::of(Token{stream, seq}); }

using Body = std::function<void(Firing&)>;

class BodyNode final : public Node {
 public:
  void fire(Firing& firing) override { body(firing); }
  Packet initial(std::size_t port) override { return start ? start(port) : Node::initial(port); }
  void interrupt() noexcept override {
    if (wake) wake();
  }
  std::uint64_t held() const override { return holds ? holds() : 0; }
  void connect(Feed* feed) override { feeds(feed); }

  Body body;
  std::function<Packet(std::size_t)> start;
  std::function<void()> wake;
  std::function<std::uint64_t()> holds;
  std::function<void(Feed*)> feeds;
};

// The common start of a body: forwards the end of any input. True: it did.
inline bool end_came(Firing& f) {
  for (Packet& p : f.inputs()) {
    if (p.is_end()) {
      f.end();
      return true;
    }
  }
  return false;
}

class PlanBuilder {
 public:
  PlanBuilder() = default;
  PlanBuilder(const PlanBuilder&) = delete;

  // Adds a node whose type is named "test_<role>" with ports out0, out1, …; returns its index.
  int node(const std::string& id, Role role, int ports, Body body) {
    static const char* const kNames[] = {"source", "per_sample", "join", "compute", "reduce", "optimizer", "sink"};
    NodeType& type = types_.emplace_back();
    type.name = std::string("test_") + kNames[static_cast<int>(role)];
    type.role = role;
    type.inputs = {Port{"in", "token", true}};
    for (int i = 0; i < ports; ++i) type.outputs.push_back(Port{"out" + std::to_string(i), "token"});
    PlanNode& node = plan.nodes.emplace_back();
    node.id = node.base = id;
    node.type = &type;
    node.outputs.resize(ports);
    nodes_.push_back(std::make_unique<BodyNode>());
    nodes_.back()->body = std::move(body);
    return static_cast<int>(nodes_.size()) - 1;
  }

  // A source of `count` tokens, then the end; count < 0: endless.
  int source(const std::string& id, std::int64_t count, int stream = 0) {
    return node(id, Role::kSource, 1, [count, stream](Firing& f) {
      const auto seq = static_cast<std::int64_t>(f.index());
      if (count >= 0 && seq >= count) return f.end();
      f.emit(0, token(stream, seq));
    });
  }

  // Hands its first input on, and the end of any.
  int pass(const std::string& id, Role role = Role::kPerSample) {
    return node(id, role, 1, [](Firing& f) {
      if (!end_came(f)) f.emit(0, std::move(f.input(0)));
    });
  }

  // Takes everything.
  int sink(const std::string& id, Body body = {}) {
    return node(id, Role::kSink, 0, [body = std::move(body)](Firing& f) {
      if (!end_came(f) && body) body(f);
    });
  }

  struct Link {
    int capacity = 2, initial = 0, port = 0;
  };
  void connect(int from, int to, Link link) {
    const int edge = static_cast<int>(plan.edges.size());
    plan.edges.push_back({from, link.port, to, 0, link.capacity, link.initial});
    plan.nodes[from].outputs[link.port].push_back(edge);
    plan.nodes[to].inputs.push_back(edge);
  }
  void connect(int from, int to) { connect(from, to, Link{}); }

  BodyNode& body(int index) { return *nodes_[index]; }
  NodeType& type(int index) { return types_[index]; }

  // The nodes, for a flow; once.
  std::vector<std::unique_ptr<Node>> take_nodes() {
    return {std::make_move_iterator(nodes_.begin()), std::make_move_iterator(nodes_.end())};
  }

  Plan plan;

 private:
  std::deque<NodeType> types_;
  std::vector<std::unique_ptr<BodyNode>> nodes_;
};

// The sixteen-stream topology, by its parts: 2·lanes sources -> lanes joins -> lanes computes -> reduce -> optimizer,
// whose weights go back to the computes on an edge that starts with one packet.
struct Lanes {
  std::vector<int> gen, pair, lane;
  int reduce = 0, opt = 0;
};
struct LaneBodies {
  std::function<Body(int)> gen, pair, lane;  // body of the i-th
  Body reduce, opt;
};
inline Lanes build_lanes(PlanBuilder& b, int lanes, int capacity, const LaneBodies& bodies) {
  Lanes l;
  for (int i = 0; i < 2 * lanes; ++i)
    l.gen.push_back(b.node("gen" + std::to_string(i), Role::kSource, 1, bodies.gen(i)));
  for (int i = 0; i < lanes; ++i) l.pair.push_back(b.node("pair" + std::to_string(i), Role::kJoin, 1, bodies.pair(i)));
  for (int i = 0; i < lanes; ++i)
    l.lane.push_back(b.node("lane" + std::to_string(i), Role::kCompute, 1, bodies.lane(i)));
  l.reduce = b.node("reduce", Role::kReduce, 1, bodies.reduce);
  l.opt = b.node("opt", Role::kOptimizer, 1, bodies.opt);
  b.body(l.opt).start = [](std::size_t) { return token(-1, 0); };
  for (int i = 0; i < 2 * lanes; ++i) b.connect(l.gen[i], l.pair[i / 2], {.capacity = capacity});
  for (int i = 0; i < lanes; ++i) {
    b.connect(l.pair[i], l.lane[i], {.capacity = capacity});
    b.connect(l.opt, l.lane[i], {.capacity = capacity, .initial = 1});
    b.connect(l.lane[i], l.reduce, {.capacity = capacity});
  }
  b.connect(l.reduce, l.opt, {.capacity = capacity});
  return l;
}

}  // namespace lanewise
