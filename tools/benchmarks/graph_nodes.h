// The node types of tools/benchmarks/graph.json: bodies that only hand packets on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/plan.h"

namespace lanewise::bench {

struct Token {
  std::int64_t stream = 0;
};

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct NoParams {
  void fields(Fields&) {}
};

struct TokenParams {
  std::int64_t count = 1;
  void fields(Fields& f) { f.add("count", count, "packets until the end").at_least(0); }
};

// Emits `count` copies of one packet: nothing is allocated.
class TokenSource final : public Node {
 public:
  TokenSource(std::int64_t count, int stream) : count_(count), token_(Packet::of(Token{stream})) {}
  void fire(Firing& f) override {
    if (static_cast<std::int64_t>(f.index()) == count_) return f.end();
    f.emit(0, token_);
  }

 private:
  const std::int64_t count_;
  const Packet token_;
};

struct WorkParams {
  std::int64_t us = 0;
  void fields(Fields& f) { f.add("us", us, "time that one firing takes").at_least(0).unit("us"); }
};

// Works a while, then hands its first input on.
class WorkNode final : public Node {
 public:
  explicit WorkNode(std::int64_t us) : us_(us) {}
  void fire(Firing& f) override {
    for (const Packet& p : f.inputs()) {
      if (p.is_end()) return f.end();
    }
    if (us_ > 0) {
      const double end = seconds_now() + static_cast<double>(us_) * 1e-6;
      while (seconds_now() < end) {
      }
    }
    f.emit(0, std::move(f.input(0)));
  }

 private:
  const std::int64_t us_;
};

// Answers each input with the same packet, and starts the cycle with it.
class NextNode final : public Node {
 public:
  void fire(Firing& f) override {
    if (f.input(0).is_end()) return f.end();
    f.emit(0, token_);
  }
  Packet initial(std::size_t) override { return token_; }

 private:
  const Packet token_ = Packet::of(Token{-1});
};

template <class P>
NodeType type(const std::string& name, Role role, std::vector<Port> in, std::vector<Port> out,
              std::function<std::unique_ptr<Node>(const NodeContext&)> make) {
  NodeType t;
  t.name = t.help = name;
  t.role = role;
  t.inputs = std::move(in);
  t.outputs = std::move(out);
  t.fields = [](Fields& f) { P().fields(f); };
  t.infer = [](InferContext& c) { c.node.signatures.resize(c.node.type->outputs.size()); };
  t.make = std::move(make);
  return t;
}

inline Registry types() {
  const auto hand_on = [](const NodeContext&) { return std::make_unique<WorkNode>(0); };
  Registry r;
  r.nodes = {
      type<TokenParams>("token", Role::kSource, {}, {{"sample", "sample"}},
                        [](const NodeContext& c) {
                          return std::make_unique<TokenSource>(c.params<TokenParams>().count, c.node.instance);
                        }),
      type<NoParams>("first_of", Role::kJoin, {{"samples", "sample", true}}, {{"batch", "batch"}}, hand_on),
      type<WorkParams>("work", Role::kCompute, {{"batch", "batch"}, {"weights", "weights"}}, {{"gradient", "gradient"}},
                       [](const NodeContext& c) { return std::make_unique<WorkNode>(c.params<WorkParams>().us); }),
      type<NoParams>("first_of_all", Role::kReduce, {{"gradients", "gradient", true}}, {{"reduced", "reduced"}},
                     hand_on),
      type<NoParams>("next", Role::kOptimizer, {{"reduced", "reduced"}}, {{"weights", "weights"}},
                     [](const NodeContext&) { return std::make_unique<NextNode>(); }),
  };
  r.nodes.back().closes_cycles = true;
  return r;
}

}  // namespace lanewise::bench
