// compute: a lane. Forward, loss and backward of one batch with the lane's own leaves; the gradient goes to the lane's bucket.
//
//   s = Σ w·r over the rows        r: a row's loss, the mean over its target elements; w: its weight
//   backward on s                  the bucket then holds Σ w·∇r; the reduction divides by Σ w over all lanes
//   tail                           per stream (Σ w·r, Σ w), per lane the flags of enum Flag
//
// In an evaluation there are no weights to wait for and no backward: only predictions.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/finite.h"
#include "runtime/loss.h"
#include "runtime/replica.h"
#include "runtime/services.h"
#include "runtime/target_means.h"

namespace lanewise {
namespace {

constexpr int kGradient = 0, kPrediction = 1;  // output ports

// x and y as the model may see them: NaN·0 is NaN, so what must not count is zeroed, not weighted away.
void mask_rows(const std::vector<Tag>& rows, at::Tensor& x, at::Tensor& y) {
  x = x.clone();
  y = y.clone();
  const at::Tensor flat_x = x.flatten(0, 1), flat_y = y.flatten(0, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].weight != 0) continue;
    flat_y[i].zero_();
    if (rows[i].filler) {
      flat_x[i].zero_();
    } else {
      flat_x[i].nan_to_num_(0.0, 0.0, 0.0);
    }
  }
}

class Compute final : public Node {
 public:
  struct Params {
    std::string model, loss = "mse";
    double delta = 1;

    void fields(Fields& f) {
      std::vector<std::string> losses;
      for (const LossType& type : loss_types()) losses.push_back(type.name);
      f.add("model", &model, "name of an entry of \"models\"").required();
      f.add("loss", &loss, "what a row's prediction is compared with its target by").one_of(losses);
      f.add("delta", &delta, "huber: where the square becomes linear").above(0);
    }
  };

  Compute(const Params& params, const NodeContext& context)
      : params_(params),
        loss_(loss_type(params.loss)),
        replicas_(context.services.get<Replicas>()),
        control_(context.plan.evaluating ? nullptr : &context.services.get<RunControl>()),
        means_(context.services.find<TargetMeans>()),
        evaluating_(context.plan.evaluating),
        predicts_(!context.node.outputs[kPrediction].empty()) {
    const std::vector<int> lanes = context.plan.with_role(Role::kCompute);
    lane_ = static_cast<int>(std::ranges::find(lanes, static_cast<int>(&context.node - context.plan.nodes.data())) -
                             lanes.begin());
  }

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    auto batch = std::make_shared<const Batch>(firing.input(0).take<Batch>());
    if (evaluating_) {
      const c10::NoGradGuard no_gradient;
      forward(*batch);
      return predict(firing, std::move(batch));
    }
    if (firing.input(1).is_end()) return firing.end();
    if (const std::uint64_t step = firing.input(1).get<Weights>().step; step != firing.index()) {
      throw Error(Exit::kInternal, fmt::format("weights of step {} came to round {}", step, firing.index()));
    }
    at::Tensor& bucket = replicas_.bucket(lane_);
    bucket.zero_();
    if (!batch->cut) {
      backward(*batch, bucket);
      if (predicts_) predict(firing, batch);
    }
    flag(Flag::kCut, batch->cut);
    flag(Flag::kStop, control_->stop_wanted());
    firing.emit(kGradient, Packet::of(Gradient{lane_, firing.index(), batch->rows, batch->cut_by}));
    prediction_.reset();
    row_losses_.reset();
  }

 private:
  void forward(const Batch& batch) {
    at::Tensor x = batch.x, y = batch.y;
    const bool masked = std::ranges::any_of(batch.rows, [](const Tag& t) { return t.weight == 0; });
    if (masked) mask_rows(batch.rows, x, y);
    prediction_ = replicas_.model(lane_).forward(x);
    row_losses_ = loss_.rows(prediction_, y, params_.delta);
    const at::Tensor host = row_losses_.detach().to(at::kDouble).contiguous();
    losses_.assign(host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
  }

  void backward(const Batch& batch, at::Tensor& bucket) {
    forward(batch);
    const bool equal = std::ranges::all_of(batch.rows, [](const Tag& t) { return t.weight == 1; });
    at::Tensor sum = row_losses_;
    double n = 0;
    for (const Tag& row : batch.rows) n += row.weight;
    if (!equal) {
      at::Tensor weights = at::empty(row_losses_.sizes(), at::kDouble);
      for (std::size_t i = 0; i < batch.rows.size(); ++i) weights.mutable_data_ptr<double>()[i] = batch.rows[i].weight;
      sum = sum * weights.to(row_losses_.scalar_type());
    }
    if (n > 0) sum.sum().backward();  // otherwise nothing counts, and the bucket stays zero
    const BucketLayout& layout = replicas_.layout();
    bool finite = true;
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      const Tag& row = batch.rows[i];
      if (row.weight == 0) continue;
      add(layout.loss_at(row.stream), row.weight * losses_[i]);
      add(layout.weight_at(row.stream), row.weight);
      finite = finite && std::isfinite(losses_[i]);
    }
    flag(Flag::kNonFinite, !finite || !all_finite(bucket, layout.parameters));
    flag(Flag::kEnded, std::ranges::all_of(batch.rows, [](const Tag& t) { return t.ended; }));
    if (means_ != nullptr) count_targets(batch);
  }

  void predict(Firing& firing, std::shared_ptr<const Batch> batch) {
    firing.emit(kPrediction,
                Packet::of(Prediction{lane_, firing.index(), prediction_.detach(), std::move(batch), losses_}));
  }

  void count_targets(const Batch& batch) {
    const at::Tensor y = batch.y.flatten(0, 1).flatten(1).to(at::kDouble).contiguous();
    const auto width = static_cast<std::size_t>(y.size(1));
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      means_->add(batch.rows[i].stream, {y.const_data_ptr<double>() + i * width, width}, batch.rows[i].weight);
    }
  }

  // The tail's elements are written by plain stores: they are no part of any autograd graph.
  void add(std::int64_t at, double value) {
    at::Tensor& bucket = replicas_.bucket(lane_);
    if (bucket.scalar_type() == at::kFloat) {
      bucket.mutable_data_ptr<float>()[at] += static_cast<float>(value);
    } else {
      bucket.mutable_data_ptr<double>()[at] += value;
    }
  }
  void flag(Flag which, bool value) {
    if (value) add(replicas_.layout().flag_at(lane_, which), 1);
  }

  const Params params_;
  const LossType& loss_;
  Replicas& replicas_;
  RunControl* const control_;
  TargetMeans* const means_;
  const bool evaluating_, predicts_;
  int lane_ = 0;
  at::Tensor prediction_, row_losses_;  // of the firing in progress
  std::vector<double> losses_;
};

// Works out the model for this lane's batches: parameters, bytes a lane.
void infer(InferContext& context) {
  const auto params = context.params<Compute::Params>();
  PlanNode& node = context.node;
  node.signatures.assign(2, Signature{.streams = context.inputs[0].streams});
  std::vector<std::string> names;
  for (const PlanModel& m : context.plan.models) names.push_back(m.name);
  const auto model = std::ranges::find(context.plan.models, params.model, &PlanModel::name);
  if (model == context.plan.models.end()) {
    return context.problem(fmt::format("there is no model \"{}\" in \"models\"{}", params.model, did_you_mean(params.model, names)),
                           "model");
  }
  const Signature& batch = context.inputs[0];
  if (!batch.x || !batch.y) return;  // unknown until run
  try {
    std::optional<Shape> asked;
    if (!model->params["outputs"].is_null()) asked = output_shape(model->params, {});
    const Shape output = loss_type(params.loss).output_shape(*batch.y, batch.integer_target, asked);
    const auto type = std::ranges::find(model_types(), model->type, &ModelType::name);
    const std::unique_ptr<Model> made = type->make(model->params, *batch.x, output);
    const BucketLayout layout(made->parameters(), static_cast<int>(context.plan.with_role(Role::kSource).size()),
                              static_cast<int>(context.plan.with_role(Role::kCompute).size()),
                              context.plan.run.dtype == "float64" ? at::kDouble : at::kFloat);
    node.signatures[kGradient].parameters = made->parameter_count();
    node.signatures[kPrediction].y = output;
    node.facts = {{"model", model->type},
                  {"parameters", made->parameter_count()},
                  {"bytes_per_lane", layout.size * (context.plan.run.dtype == "float64" ? 8 : 4)}};
  } catch (const Error& error) {
    context.problem(fmt::format("model \"{}\" ({}) cannot take what arrives here, {}: {}", model->name, model->type,
                                batch.text(), error.what()));
  }
}

}  // namespace

NodeType compute() {
  NodeType type = node_type<Compute>("compute", "a lane: forward, loss and backward of a batch on one device", Role::kCompute,
                                     {{"batch", "batch"}, {"weights", "weights"}},
                                     {{"gradient", "gradient"}, {"prediction", "prediction"}}, infer);
  type.has_device = true;
  return type;
}

}  // namespace lanewise
