// window: the newest `length` samples of a stream as one, oldest first: x of shape [F] becomes [length, F].
//
//   { "id": "win", "repeat": 16, "type": "window", "in": [ { "from": "norm", "take": 1 } ], "params": { "length": 14 }
//   }
//
// Target and tag are the newest sample's. A sequence's first length - 1 samples only fill the window: no window spans
// the start of a run, or a gap above the source's max_gap. A filler passes without touching it.
#include <ATen/ATen.h>

#include <deque>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "runtime/tensor_ring.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

class Window final : public PerSample {
 public:
  struct Params {
    std::int64_t length = 8;
    void fields(Fields& f) { f.add("length", &length, "samples in a window").between(1, 1 << 20).unit("samples"); }
  };

  Window(const Params& params, const NodeContext& context)
      : PerSample(context), length_(static_cast<std::size_t>(params.length)) {}

 private:
  std::optional<Sample> apply(Sample sample) override {
    if (sample.tag.filler) {
      sample.x = at::zeros(window_shape(sample.x), sample.x.options());
      return sample;
    }
    if (sample.tag.start) {
      held_.clear();
      start_ = true;
    }
    if (held_.size() == length_) held_.pop_front();
    held_.push_back(sample.x);
    if (held_.size() < length_) return std::nullopt;
    sample.x = windows_.next(window_shape(sample.x), sample.x.scalar_type());
    auto* to = static_cast<char*>(sample.x.mutable_data_ptr());
    for (const at::Tensor& x : held_) to = copy_elements(x, to);
    sample.tag.start = std::exchange(start_, false);
    return sample;
  }

  Shape window_shape(const at::Tensor& x) const {
    Shape shape = shape_of(x);
    shape.insert(shape.begin(), static_cast<std::int64_t>(length_));
    return shape;
  }

  nlohmann::json save() const override {
    nlohmann::json held = nlohmann::json::array();
    for (const at::Tensor& x : held_) held.push_back(save_tensor(x));
    return {{"held", held}, {"start", start_}};
  }
  void load(const nlohmann::json& saved) override {
    held_.clear();
    for (const nlohmann::json& x : saved.at("held")) held_.push_back(load_tensor(x));
    start_ = saved.at("start");
  }

  const std::size_t length_;
  std::deque<at::Tensor> held_;  // x of the newest samples, oldest first
  TensorRing windows_;
  bool start_ = false;  // the next window is the first of its run
};

void infer(InferContext& context) {
  const auto params = context.params<Window::Params>();
  Signature signature = context.inputs[0];
  if (signature.x) signature.x->insert(signature.x->begin(), params.length);
  if (signature.length) {
    signature.length = *signature.length - params.length + 1;
    if (*signature.length < 1) {
      context.problem(fmt::format("a window of {} is longer than its stream, which has {} samples", params.length,
                                  *context.inputs[0].length),
                      "length");
    }
  }
  context.node.signatures = {signature};
}

}  // namespace

NodeType window() {
  return node_type<Window>("window", "the newest samples of a stream as one, with a time axis", Role::kPerSample,
                           {{"sample", "sample"}}, {{"sample", "sample"}}, infer);
}

}  // namespace lanewise
