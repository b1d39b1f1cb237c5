// Runs nodes by hand, without a graph: packets in, packets out.
//
//   const Bench bench({{"gen0", constant(), {{"ramp", 1}}}, {"win0", window(), {{"length", 1}}, {"gen0"}}});
//   NodeRunner win(bench, "win0");
//   CHECK(text(*win.fire({Packet::of(make_sample({1}, {2}))}).sample()) == "run 0 seq 0 start | x 1 | y 2");
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "runtime/generators/generators.h"
#include "runtime/random.h"
#include "runtime/services.h"
#include "runtime/tensors.h"
#include "runtime/values.h"
#include "tests/check.h"

// A failure shows the lines, one below another.
template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& lines) {
    return fmt::format("\n  {}\n", fmt::join(lines, "\n  ")).c_str();
  }
};

namespace lanewise {

// One node of a test's plan: its inputs by id, in port order.
struct BenchNode {
  std::string id;
  NodeType type;
  nlohmann::json params = nlohmann::json::object();
  std::vector<std::string> inputs = {};
};

// A plan put together by hand, its signatures inferred, and the services that sources, per-sample nodes and joins need.
struct Bench {
  explicit Bench(std::vector<BenchNode> parts, SourceRules source_rules = {}, std::uint64_t run_seed = 7)
      : rules(source_rules), seed{run_seed, source_rules.evaluating ? "evaluate" : "train"} {
    plan.evaluating = rules.evaluating;
    for (BenchNode& part : parts) {
      types.push_back(part.type);
      PlanNode node;
      node.id = node.base = part.id;
      node.type = &types.back();
      node.params = part.params;
      node.outputs.resize(part.type.outputs.size());
      for (const std::string& input : part.inputs) {
        const auto from = static_cast<int>(std::ranges::find(plan.nodes, input, &PlanNode::id) - plan.nodes.begin());
        const auto edge = static_cast<int>(plan.edges.size());
        plan.edges.push_back({.from = from, .to = static_cast<int>(plan.nodes.size())});
        plan.nodes[from].outputs[0].push_back(edge);
        node.inputs.push_back(edge);
      }
      plan.nodes.push_back(std::move(node));
    }
    for (PlanNode& node : plan.nodes) {
      std::vector<Signature> incoming;
      for (const int edge : node.inputs) incoming.push_back(plan.nodes[plan.edges[edge].from].signatures.at(0));
      InferContext context(plan, node, incoming, problems);
      node.type->infer(context);
    }
    streams.emplace(plan);
    services.add(rules);
    services.add(seed);
    services.add(*streams);
    services.add(normalization);
    services.add(generators);
  }

  Bench(const Bench&) = delete;  // the services are its members

  const PlanNode& node(const std::string& id) const { return *std::ranges::find(plan.nodes, id, &PlanNode::id); }
  std::unique_ptr<Node> make(const std::string& id) const { return node(id).type->make({plan, node(id), services}); }

  SourceRules rules;
  RandomSeed seed;
  std::deque<NodeType> types;
  Plan plan;
  std::vector<Problem> problems;
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
  NodeRunner(const Bench& bench, const std::string& id) : node_(bench.make(id)) {}

  Fired fire(std::vector<Packet> inputs = {}) {
    Fired fired;
    Firing firing(fired_++, inputs, {&fired.packet, 1});
    node_->fire(firing);
    fired.ended = firing.ended();
    fired.absorbed = firing.absorbed();
    return fired;
  }

  // Of a source: up to `most` samples, less when it ends.
  std::vector<Sample> take(int most) {
    std::vector<Sample> samples;
    while (most-- > 0) {
      const Fired fired = fire();
      if (fired.ended) break;
      samples.push_back(*fired.sample());
    }
    return samples;
  }

  Node& node() { return *node_; }

 private:
  std::unique_ptr<Node> node_;
  std::uint64_t fired_ = 0;
};

inline Sample make_sample(const std::vector<double>& x, const std::vector<double>& y, std::uint64_t seq = 0,
                          at::ScalarType dtype = at::kFloat) {
  Sample sample;
  sample.x = make_tensor(x, {static_cast<std::int64_t>(x.size())}, dtype);
  sample.y = make_tensor(y, {static_cast<std::int64_t>(y.size())}, dtype);
  sample.tag.seq = seq;
  sample.tag.start = seq == 0;
  return sample;
}

inline std::string text(const at::Tensor& tensor) {
  std::vector<std::string> values;
  for (const double v : tensor_values(tensor)) values.push_back(fmt::format("{:.6g}", v));
  return fmt::format("{}", fmt::join(values, " "));
}

inline std::string text(const Tag& tag) {
  std::string text = fmt::format("run {} seq {}", tag.run, tag.seq);
  if (tag.start) text += " start";
  if (tag.filler) text += " filler";
  if (tag.ended) text += " ended";
  if (tag.time) text += fmt::format(" time {}", *tag.time);
  if (tag.weight != 1) text += fmt::format(" weight {}", tag.weight);
  return text;
}

// "run 0 seq 1 weight 0 | x 1 2 | y 3 | known 4"
inline std::string text(const Sample& sample) {
  std::string all = text(sample.tag) + " | x " + text(sample.x) + " | y " + text(sample.y);
  if (sample.known.defined()) all += " | known " + text(sample.known);
  return all;
}

inline std::vector<std::string> texts(const std::vector<Sample>& samples) {
  std::vector<std::string> lines;
  for (const Sample& s : samples) lines.push_back(text(s));
  return lines;
}

// The same tag and the same bits.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, true)));
}
inline bool same(const Sample& a, const Sample& b) {
  return text(a.tag) == text(b.tag) && same(a.x, b.x) && same(a.y, b.y) && same(a.known, b.known);
}

// The problems of a bench as "parameter: rule", the exit code in brackets where it is not the usual one.
inline std::vector<std::string> rules_of(const std::vector<Problem>& problems) {
  std::vector<std::string> rules;
  for (const Problem& p : problems)
    rules.push_back(p.rule + (p.exit == Exit::kPipeline ? "" : fmt::format(" [{}]", static_cast<int>(p.exit))));
  return rules;
}

// What a call throws, as "CODE: message"; "" when it throws no Error.
template <class F>
std::string error_of(const F& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return fmt::format("{}: {}", static_cast<int>(error.exit()), error.what());
  }
}

// A file that lives as long as this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : folder_((std::filesystem::temp_directory_path() / "lanewise-XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
    std::ofstream(path(), std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/data.csv"; }
  // A text with the path replaced by "FILE".
  std::string masked(std::string message) const {
    for (std::size_t at; (at = message.find(path())) != std::string::npos;) message.replace(at, path().size(), "FILE");
    return message;
  }

 private:
  std::string folder_;
};

}  // namespace lanewise
