#include "nodes/node_runner.h"

#include <fmt/format.h>

#include <algorithm>

namespace lanewise {

Bench::Bench(std::vector<BenchNode> parts, SourceRules source_rules, std::uint64_t run_seed)
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

Fired NodeRunner::fire(std::vector<Packet> inputs) {
  Fired fired;
  Firing firing(fired_++, inputs, outputs_);
  node_->fire(firing);
  for (std::optional<Packet>& output : outputs_) {
    if (&output == outputs_.data()) fired.packet = std::move(output);
    output.reset();
  }
  fired.ended = firing.ended();
  fired.absorbed = firing.absorbed();
  return fired;
}

std::vector<Sample> NodeRunner::take(int most) {
  std::vector<Sample> samples;
  while (most-- > 0) {
    const Fired fired = fire();
    if (fired.ended) break;
    samples.push_back(*fired.sample());
  }
  return samples;
}

std::string text(const Tag& tag) {
  std::string text = fmt::format("run {} seq {}", tag.run, tag.seq);
  if (tag.start) text += " start";
  if (tag.filler) text += " filler";
  if (tag.ended) text += " ended";
  if (tag.time) text += fmt::format(" time {}", *tag.time);
  if (tag.weight != 1) text += fmt::format(" weight {}", tag.weight);
  return text;
}

}  // namespace lanewise
