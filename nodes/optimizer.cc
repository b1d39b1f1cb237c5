// optimizer: decides from the reduced tail whether the round counts, then steps every memory domain alike.
//
//   finite vote -> optimizer -> mark_changed -> record -> new weights
//
// A round is applied by every domain or by none. A round that does not count (a stream has ended) ends the run.
#include <ATen/ATen.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/finite.h"
#include "runtime/optimizer_ops.h"
#include "runtime/replica.h"
#include "runtime/services.h"

namespace lanewise {
namespace {

constexpr int kWeights = 0, kStep = 1;  // output ports

class Optimizer final : public Node {
 public:
  using Params = OptimizerParams;

  Optimizer(const Params& params, const NodeContext& context)
      : params_(params),
        plan_(context.plan),
        streams_(context.services.get<StreamTable>()),
        replicas_(context.services.get<Replicas>()),
        control_(context.services.get<RunControl>()) {
    for (int d = 0; d < replicas_.domain_count(); ++d) {
      domains_.push_back(make_flat_optimizer(params, replicas_.weights(d)));
    }
  }

  Packet initial(std::size_t) override { return Packet::of(Weights{}); }

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    const Reduced reduced = firing.input(0).take<Reduced>();
    if (reduced.cut || reduced.all_ended) {
      control_.not_applied(reduced);
      return firing.finish();
    }
    if (!reduced.non_finite.empty()) throw Error(Exit::kNonFinite, blame(reduced));

    auto record = std::make_shared<StepRecord>();
    record->step = firing.index() + 1;
    record->loss = reduced.loss;
    record->lanes = reduced.lanes;
    record->streams = reduced.streams;
    record->n = reduced.n;
    record->lr = params_.lr;
    if (reduced.n > 0) record->grad_norm = apply();
    const RunControl::Next next = control_.after_step(record, reduced);
    firing.emit(kStep, Packet::of(*record));
    if (next == RunControl::Next::kFinish) return firing.finish();
    firing.emit(kWeights, Packet::of(Weights{record->step}));
    if (next == RunControl::Next::kPause) firing.pause();
  }

 private:
  // Steps every domain with the same gradient; returns its norm.
  double apply() {
    const std::int64_t n = replicas_.layout().parameters;
    for (int d = 0; d < replicas_.domain_count(); ++d) {
      domains_[d]->step(replicas_.weights(d), replicas_.reduced(d).narrow(0, 0, n), params_.lr);
      replicas_.mark_changed(d);
    }
    return norm(replicas_.reduced(0), n);
  }

  std::string blame(const Reduced& reduced) const {
    std::string text = fmt::format("step {}: the loss or the gradient is not finite", reduced.round + 1);
    const std::vector<int> lanes = plan_.with_role(Role::kCompute);
    for (const int lane : reduced.non_finite) {
      const PlanNode& node = plan_.nodes[lanes[lane]];
      text += fmt::format("\n  {} ({}): loss {}", node.id, node.device,
                          reduced.lanes[lane] ? fmt::format("{}", *reduced.lanes[lane]) : "none");
      for (const Tag& row : reduced.gradients[lane].rows) {
        text += fmt::format("; stream {}, run {}, seq {}", streams_.name(row.stream), row.run, row.seq);
        if (const auto& loss = reduced.streams[row.stream]) text += fmt::format(", loss {}", *loss);
      }
    }
    return text + "\n  nothing was applied; look at these samples, or lower the optimizer's lr";
  }

  const Params params_;
  const Plan& plan_;
  const StreamTable& streams_;
  Replicas& replicas_;
  RunControl& control_;
  std::vector<std::unique_ptr<FlatOptimizer>> domains_;
};

void infer(InferContext& context) { context.node.signatures = {context.inputs[0], context.inputs[0]}; }

}  // namespace

NodeType optimizer() {
  NodeType type = node_type<Optimizer>("optimizer", "steps the weights by the reduced gradient", Role::kOptimizer,
                                       {{"reduced", "reduced"}}, {{"weights", "weights"}, {"step", "step"}}, infer);
  type.closes_cycles = true;
  return type;
}

}  // namespace lanewise
