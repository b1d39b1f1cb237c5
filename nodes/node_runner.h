// Runs nodes by hand, without a graph: packets in, packets out.
//
//   const Bench bench({{"gen0", constant(), {{"ramp", 1}}}, {"win0", window(), {{"length", 1}}, {"gen0"}}});
//   NodeRunner gen(bench, "gen0"), win(bench, "win0");
//   win.fire({*gen.fire().packet}).sample()
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "runtime/generators/generators.h"
#include "runtime/random.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

// One node of a plan that is put together by hand: its inputs by id, in port order.
struct BenchNode {
  std::string id;
  NodeType type;
  nlohmann::json params = nlohmann::json::object();
  std::vector<std::string> inputs = {};
};

// Such a plan, its signatures inferred, and the services that sources, per-sample nodes and joins need. Must outlive
// the nodes that are made of it.
struct Bench {
  explicit Bench(std::vector<BenchNode> parts, SourceRules source_rules = {}, std::uint64_t run_seed = 7);
  Bench(const Bench&) = delete;  // the services are its members

  const PlanNode& node(const std::string& id) const { return *plan.find(id); }
  std::unique_ptr<Node> make(const std::string& id) const { return node(id).type->make({plan, node(id), services}); }

  SourceRules rules;
  RandomSeed seed;
  std::deque<NodeType> types;
  Plan plan;
  std::vector<Problem> problems;  // of the nodes' infer()
  std::optional<StreamTable> streams;
  Normalization normalization;
  Generators generators{{}};
  Services services;
};

// What one firing did.
struct Fired {
  std::optional<Packet> packet;  // on output 0
  bool ended = false;
  std::uint64_t absorbed = 0;

  std::optional<Sample> sample() const { return packet ? std::optional(packet->get<Sample>()) : std::nullopt; }
};

class NodeRunner {
 public:
  NodeRunner(const Bench& bench, const std::string& id)
      : node_(bench.make(id)), outputs_(bench.node(id).type->outputs.size()) {}

  Fired fire(std::vector<Packet> inputs = {});
  // Of a source: up to `most` samples, less when it ends.
  std::vector<Sample> take(int most);

  Node& node() { return *node_; }

 private:
  std::unique_ptr<Node> node_;
  std::vector<std::optional<Packet>> outputs_;  // of a firing
  std::uint64_t fired_ = 0;
};

// "run 0 seq 1 start weight 0"
std::string text(const Tag& tag);

}  // namespace lanewise
