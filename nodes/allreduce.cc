// allreduce: the one reduction of a round. Adds the lanes' buckets through the run's communicator and reads the
// decisions (ends, non-finite lanes, stop) and every loss from the reduced tail. A step is run.accumulate rounds, whose
// sums add up.
#include <ATen/ATen.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/communicator.h"
#include "runtime/devices/device_training.h"
#include "runtime/lane_table.h"
#include "runtime/replica.h"
#include "runtime/round_tail.h"

namespace lanewise {
namespace {

class Allreduce final : public Node {
 public:
  struct Params {
    void fields(Fields&) {}
  };

  Allreduce(const Params&, const NodeContext& context)
      : accumulate_(context.plan.run.accumulate),
        drops_(context.plan.run.non_finite == "skip"),
        replicas_(context.services.get<Replicas>()),
        communicator_(context.services.get<Communicator>()),
        lanes_(context.services.get<LaneTable>()),
        devices_(context.services.find<DeviceTraining>()) {}

  void fire(Firing& firing) override {
    for (Packet& input : firing.inputs()) {
      if (input.is_end()) return firing.end();
    }
    Reduced reduced;
    reduced.round = round_;
    for (Packet& input : firing.inputs()) reduced.gradients.push_back(input.take<Gradient>());
    std::ranges::sort(reduced.gradients, {}, &Gradient::lane);
    for (std::size_t i = 0; i < reduced.gradients.size(); ++i) {
      const Gradient& g = reduced.gradients[i];
      const int lane = lanes_.own().begin + static_cast<int>(i);
      if (g.lane != lane || g.round != round_) {
        throw Error(Exit::kInternal, fmt::format("round {}: lane {} brought its round {} where lane {} was due", round_,
                                                 g.lane, g.round, lane));
      }
    }
    ++in_step_;
    const bool last = in_step_ == accumulate_;
    const RoundOfStep round{.first = in_step_ == 1, .last = last, .number = round_};
    if (devices_ != nullptr) {
      devices_->reduce(round);
      reduced.known = drops_ && !last;  // whether the step goes on hangs on it
      if (reduced.known) devices_->tell(reduced);
    } else {
      const double n = communicator_.reduce(replicas_, round);
      const BucketLayout& layout = replicas_.layout();
      const at::Tensor tail = replicas_.reduced(0).narrow(0, layout.parameters, layout.tail()).to(at::kDouble);
      read_tail(reduced, n, {tail.const_data_ptr<double>(), static_cast<std::size_t>(tail.numel())}, layout, lanes_);
    }
    reduced.complete = last || (drops_ && !reduced.non_finite.empty());
    if (reduced.complete) in_step_ = 0;
    ++round_;
    firing.emit(0, Packet::of(std::move(reduced)));
  }

  // Saved between two steps.
  nlohmann::json state() const override { return {{"round", round_}}; }
  void restore(const nlohmann::json& state) override { round_ = state.at("round"); }

 private:
  const std::int64_t accumulate_;  // rounds of a step
  const bool drops_;               // a round that is not finite ends its step
  std::int64_t in_step_ = 0;       // rounds of this step so far
  std::uint64_t round_ = 0;        // of the whole training
  Replicas& replicas_;
  Communicator& communicator_;
  const LaneTable& lanes_;
  DeviceTraining* const devices_;  // null: lanes are on the host
};

// All lanes train one model: the same name, and as many parameters.
void infer(InferContext& context) {
  const Plan& plan = context.plan;
  const PlanNode* first = nullptr;
  Signature out;
  for (std::size_t i = 0; i < context.node.inputs.size(); ++i) {
    const PlanNode& lane = plan.nodes[plan.edges[context.node.inputs[i]].from];
    const Signature& gradient = context.inputs[i];
    if (first == nullptr) {
      first = &lane;
      out.parameters = gradient.parameters;
    } else if (lane.params["model"] != first->params["model"]) {
      context.problem(fmt::format("{} trains model {} and {} trains {}; one reduction takes the gradients of one model",
                                  first->id, first->params["model"].dump(), lane.id, lane.params["model"].dump()));
    } else if (gradient.parameters && out.parameters && *gradient.parameters != *out.parameters) {
      context.problem(fmt::format("{} has {} parameters and {} has {}: the lanes' samples must have equal shapes",
                                  first->id, *out.parameters, lane.id, *gradient.parameters));
    }
    out.streams.insert(out.streams.end(), gradient.streams.begin(), gradient.streams.end());
  }
  if (const std::size_t lanes = plan.with_role(Role::kCompute).size(); lanes != context.node.inputs.size()) {
    context.problem(fmt::format("{} of {} compute nodes arrive here; the one reduction takes them all",
                                context.node.inputs.size(), lanes));
  }
  context.node.signatures = {out};
}

}  // namespace

NodeType allreduce() {
  NodeType type =
      node_type<Allreduce>("allreduce", "adds the gradients of all lanes and divides by the rows that count",
                           Role::kReduce, {{"gradients", "gradient", /*many=*/true}}, {{"reduced", "reduced"}}, infer);
  type.may_wait = true;  // for other processes
  return type;
}

}  // namespace lanewise
