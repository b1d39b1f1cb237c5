#include "runtime/fit.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/fitting.h"

namespace lanewise {
namespace {

// The nodes above one, from their source down, run by hand.
class Chain {
 public:
  Chain(const Plan& plan, const PlanNode& below, const Services& services) {
    for (const PlanNode* node = &below; !node->inputs.empty();) {
      node = &plan.nodes[plan.edges[node->inputs[0]].from];
      ids_.insert(ids_.begin(), node->id);
      PlanNode& own = plan_nodes_.emplace_back(*node);
      // One pass, whatever the end of the stream means in the training.
      if (own.params.contains("on_end")) own.params["on_end"] = nullptr;
      nodes_.insert(nodes_.begin(), node->type->make({plan, own, services}));
    }
  }

  // The next sample; nullopt at the end of the pass.
  std::optional<Sample> next() {
    while (true) {
      std::optional<Packet> packet = fire(0, {});
      for (std::size_t i = 1; packet && i < nodes_.size(); ++i) packet = fire(i, {&*packet, 1});
      if (ended_) return std::nullopt;
      if (packet) return packet->take<Sample>();
    }
  }

 private:
  std::optional<Packet> fire(std::size_t i, std::span<Packet> inputs) {
    std::optional<Packet> output;
    Firing firing(fired_, inputs, {&output, 1});
    if (i == 0) ++fired_;
    try {
      nodes_[i]->fire(firing);
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("{}, while fitting: {}", ids_[i], error.what()));
    }
    ended_ = ended_ || firing.ended();
    return output;
  }

  std::deque<PlanNode> plan_nodes_;  // outlive the nodes
  std::vector<std::string> ids_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t fired_ = 0;
  bool ended_ = false;
};

}  // namespace

void fit_normalizers(const Plan& train, const Services& services, Normalization& normalization,
                     const std::function<void()>& look_up) {
  SourceRules rules = services.get<SourceRules>();
  rules.end_rule = "first";
  rules.passes = std::nullopt;
  rules.evaluating = false;
  rules.record_every = 0;
  Services pass = services;
  pass.add(rules);
  pass.add(normalization);
  for (const PlanNode& node : train.nodes) {
    if (node.type->name != "normalize") continue;
    const auto params = read_checked<NormalizeParams>(node.params);
    if (params.mode != "fit") continue;
    look_up();
    Chain chain(train, node, pass);
    Fitting fitting(params.target);
    std::int64_t left = params.fit_samples.value_or(-1);
    for (; left != 0; --left) {
      if (left % 64 == 0) look_up();
      const std::optional<Sample> sample = chain.next();
      if (!sample) break;
      fitting.add(*sample);
    }
    if (left == params.fit_samples.value_or(-1)) {
      throw Error(Exit::kData, fmt::format("{} got no sample to fit on", node.id));
    }
    normalization.set(node.id, fitting.statistics());
  }
}

}  // namespace lanewise
