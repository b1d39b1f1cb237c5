// normalize: brings each column of a stream to mean 0 and standard deviation 1.
//
//   x' = (x - mean) / scale, per column of the last axis; a missing value (NaN) becomes 0, the mean
//   y' the same with its own statistics; class numbers are left alone, a missing target stays NaN
//
// The statistics are fitted in a pass over the training rows before step 0 (runtime/fit.h) and frozen. In mode
// `running` they are those of the samples so far, kept in the Normalization service; an evaluation uses them as they
// then are.
#include <ATen/ATen.h>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "runtime/fitting.h"
#include "runtime/tensor_ring.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

// (values - mean) / scale in double, rounded once. NaN becomes `missing`.
at::Tensor scaled(const at::Tensor& values, const std::vector<double>& mean, const std::vector<double>& scale,
                  std::optional<double> missing, TensorRing& ring) {
  const at::Tensor dense = values.contiguous();
  at::Tensor out = ring.next(values.sizes(), values.scalar_type());
  with_type(out, [&]<class T>(T) {
    const T* const from = dense.const_data_ptr<T>();
    T* const to = data_of<T>(out);
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const std::size_t c = static_cast<std::size_t>(i) % mean.size();
      const double value = from[i];
      to[i] = static_cast<T>(missing && std::isnan(value) ? *missing : (value - mean[c]) / scale[c]);
    }
  });
  return out;
}

class Normalize final : public PerSample {
 public:
  using Params = NormalizeParams;

  Normalize(const Params& params, const NodeContext& context)
      : PerSample(context),
        id_(context.node.id),
        target_(params.target),
        learns_(params.mode == "running" && !context.plan.evaluating),
        table_(context.services.get<Normalization>()),
        fitting_(params.target) {
    if (learns_) {
      publish(Statistics{});
      return;
    }
    const Statistics* found = table_.find(id_);
    if (found == nullptr) throw Error(Exit::kInternal, fmt::format("{} was not fitted", id_));
    statistics_ = *found;
  }

 private:
  std::optional<Sample> apply(Sample sample) override {
    if (sample.tag.filler) return sample;
    if (learns_) {
      fitting_.add(sample);
      publish(fitting_.statistics());
    }
    require_columns(sample.x, statistics_.x_mean.size());
    sample.x = scaled(sample.x, statistics_.x_mean, statistics_.x_scale, 0.0, xs_);
    if (target_ && at::isFloatingType(sample.y.scalar_type()) && !statistics_.y_mean.empty()) {
      require_columns(sample.y, statistics_.y_mean.size());
      sample.y = scaled(sample.y, statistics_.y_mean, statistics_.y_scale, std::nullopt, ys_);
      if (sample.known.defined()) {
        sample.known = scaled(sample.known, statistics_.y_mean, statistics_.y_scale, std::nullopt, known_);
      }
    }
    return sample;
  }

  void require_columns(const at::Tensor& values, std::size_t columns) const {
    if (static_cast<std::size_t>(columns_of(values)) == columns) return;
    throw Error(Exit::kData, fmt::format("{} was fitted on {} columns and got {}", id_, columns, columns_of(values)));
  }

  // The entry of this node in the table is made at construction and then changed by this node alone.
  void publish(Statistics statistics) {
    statistics_ = statistics;
    table_.set(id_, std::move(statistics));
  }

  nlohmann::json save() const override { return fitting_.state(); }
  void load(const nlohmann::json& saved) override {
    fitting_.restore(saved);
    if (learns_) publish(fitting_.statistics());
  }

  const std::string id_;
  const bool target_;
  const bool learns_;  // mode `running`, in training
  Normalization& table_;
  Fitting fitting_;
  Statistics statistics_;
  TensorRing xs_, ys_, known_;
};

void infer(InferContext& context) {
  const auto params = context.params<NormalizeParams>();
  const Signature& input = context.inputs[0];
  if (input.endless && params.mode == "fit" && !params.fit_samples && !context.plan.evaluating) {
    const std::string stream = input.streams.empty() ? "its stream" : input.streams[0];
    context.problem(
        fmt::format("{} is endless, so {} cannot fit on all of it: give \"fit_samples\", or \"mode\": \"running\"",
                    stream, context.node.id));
  }
  context.node.signatures = {input};
}

}  // namespace

NodeType normalize() {
  NodeType type = node_type<Normalize>("normalize", "brings each column of a stream to mean 0 and standard deviation 1",
                                       Role::kPerSample, {{"sample", "sample"}}, {{"sample", "sample"}}, infer);
  type.fills_missing = true;
  return type;
}

}  // namespace lanewise
