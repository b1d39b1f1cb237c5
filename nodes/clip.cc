// clip: scales the reduced gradient down to a largest norm, before the optimizer sees it.
//
//   g <- g · min(1, max_norm / (‖g‖ + 1e-6))        ‖g‖ over all parameters, as torch.nn.utils.clip_grad_norm_ has it
//
//   { "id": "clip", "type": "clip", "in": [ { "from": "reduce" } ], "params": { "max_norm": 1.0 } }
#include <ATen/ATen.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/devices/device_training.h"
#include "runtime/finite.h"
#include "runtime/replica.h"

namespace lanewise {
namespace {

class Clip final : public Node {
 public:
  struct Params {
    double max_norm = 1;
    void fields(Fields& f) {
      f.add("max_norm", &max_norm, "the largest norm of a gradient that is left as it is").above(0);
    }
  };

  Clip(const Params& params, const NodeContext& context)
      : max_norm_(params.max_norm),
        replicas_(context.services.get<Replicas>()),
        devices_(context.services.find<DeviceTraining>()) {}

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    Reduced reduced = firing.input(0).take<Reduced>();
    if (devices_ != nullptr) {
      if (reduced.complete) devices_->clip(max_norm_);
    } else if (reduced.complete && reduced.n > 0) {
      const std::int64_t n = replicas_.layout().parameters;
      reduced.grad_norm = norm(replicas_.reduced(0), n);
      const double scale = max_norm_ / (*reduced.grad_norm + 1e-6);
      for (int d = 0; scale < 1 && d < replicas_.domain_count(); ++d) replicas_.reduced(d).narrow(0, 0, n).mul_(scale);
    }
    firing.emit(0, Packet::of(std::move(reduced)));
  }

 private:
  const double max_norm_;
  Replicas& replicas_;
  DeviceTraining* const devices_;  // null: lanes are on the host
};

}  // namespace

NodeType clip() {
  return node_type<Clip>("clip", "scales the reduced gradient down to a largest norm", Role::kReduce,
                         {{"reduced", "reduced"}}, {{"reduced", "reduced"}},
                         [](InferContext& context) { context.node.signatures = {context.inputs[0]}; });
}

}  // namespace lanewise
