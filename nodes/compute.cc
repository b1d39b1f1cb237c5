// compute: a lane. Forward, loss and backward of one batch with the lane's own leaves; the gradient goes to the lane's
// bucket.
//
//   s = Σ w·r over the rows        r: a row's loss, the mean over its target elements; w: its weight
//   backward on s                  the bucket then holds Σ w·∇r; the reduction divides by Σ w over all lanes
//   tail                           per stream (Σ w·r, Σ w), per lane the flags of enum Flag
//
// With run.state `carry` a recurrent model goes on from what each row's stream has left; with `zero` every sample
// begins anew.
//
// On a GPU the round is issued, and the host learns later what came of it (runtime/devices/device_lane.h).
//
// In an evaluation there are no weights to wait for and no backward: only predictions.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/archive.h"
#include "runtime/devices/device_training.h"
#include "runtime/dropout.h"
#include "runtime/finite.h"
#include "runtime/lane_forward.h"
#include "runtime/lane_table.h"
#include "runtime/loss.h"
#include "runtime/profiler.h"
#include "runtime/recurrent_state.h"
#include "runtime/replica.h"
#include "runtime/services.h"
#include "runtime/setup.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

constexpr int kGradient = 0, kPrediction = 1;  // output ports

class Compute final : public Node {
 public:
  struct Params {
    std::string model, loss = "mse";
    double delta = 1;
    Path loss_path;
    std::string loss_sha256;

    // `losses`: those that there are; empty: the loss was looked at before.
    void fields(Fields& f, const std::vector<std::string>& losses = {}) {
      f.add("model", &model, "name of an entry of \"models\"").required();
      Field named = f.add("loss", &loss, "what a row's prediction is compared with its target by");
      if (!losses.empty()) named.one_of(losses);
      f.add("delta", &delta, "huber: where the square becomes linear").above(0);
      f.add("loss_path", &loss_path,
            "torchscript: the archive, by torch.jit.script(module).save(); it is code, which only a run loads");
      f.add("loss_sha256", &loss_sha256,
            "torchscript: of the archive; another one is refused. Without it, any will do");
      if (const std::string problem = sha256_problem(loss_sha256); !problem.empty()) f.problem("loss_sha256", problem);
      const bool scripted = loss == "torchscript";
      if (scripted && loss_path.text.empty())
        f.problem("loss", "the loss torchscript is code of yours; name its archive by loss_path");
      if (!scripted && !loss_path.text.empty())
        f.problem("loss_path",
                  fmt::format("the loss {} has no archive; torchscript has, so name that as the loss", loss));
    }
  };

  Compute(const Params& params, const NodeContext& context)
      : params_(params),
        replicas_(context.services.get<Replicas>()),
        loss_(loss_of(context)),
        control_(context.plan.evaluating ? nullptr : &context.services.get<RunControl>()),
        recurrent_(context.services.get<RecurrentState>()),
        dropout_(context.plan.evaluating ? nullptr : &context.services.get<Dropout>()),
        times_(context.services.find<LaneTimes>()),
        carries_(context.plan.run.state == "carry"),
        evaluating_(context.plan.evaluating),
        predicts_(!context.node.outputs[kPrediction].empty()) {
    const LaneTable& lanes = context.services.get<LaneTable>();
    lane_ = lanes.index(context.node.id);
    parts_ = lanes.parts(lane_);
    blames_ = parts_.size() > 1 && context.plan.run.non_finite != "allow";
    if (auto* const devices = context.services.find<DeviceTraining>()) {
      device_ = &devices->lane(lane_);
      if (!evaluating_)
        device_->compare_by(loss_, params.delta, element_count(*context.node.signatures[kPrediction].y));
    }
  }

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    auto batch = std::make_shared<const Batch>(firing.input(0).take<Batch>());
    if (evaluating_) {
      if (batch->cut)
        throw Error(Exit::kData, fmt::format("stream {} ended in the middle of an evaluation", batch->cut_by));
      if (device_ != nullptr) {
        take(device_->predict(*batch, recurrent_, loss_, params_.delta));
      } else {
        const c10::NoGradGuard no_gradient;
        forward(*batch);
      }
      return predict(firing, std::move(batch));
    }
    if (firing.input(1).is_end()) return firing.end();
    weights_ = firing.input(1).get<Weights>();
    if (device_ != nullptr) {
      device_->train(batch, weights_.round, control_->stop_wanted(), predicts_);
      if (!batch->cut && predicts_) {
        take(device_->result());
        predict(firing, batch);
      }
    } else {
      at::Tensor& bucket = replicas_.bucket(lane_);
      bucket.zero_();
      if (!batch->cut) {
        backward(*batch, bucket);
        if (predicts_) predict(firing, batch);
      }
      flag(Flag::kCut, batch->cut);
      flag(Flag::kStop, control_->stop_wanted());
    }
    firing.emit(kGradient, Packet::of(Gradient{lane_, weights_.round, std::move(batch), std::move(to_blame_)}));
    prediction_.reset();
    row_losses_.reset();
    state_.reset();
  }

 private:
  // The loss, loaded where it is code.
  LossType loss_of(const NodeContext& context) const {
    const LossType& type = loss_type(params_.loss);
    if (!type.load) return type;
    const PlanEdge& edge = context.plan.edges[context.node.inputs[0]];
    const Signature& batch = context.plan.nodes[edge.from].signatures[edge.from_port];
    try {
      const std::string& bytes = context.services.get<Archives>().read(params_.loss_path.text, params_.loss_sha256);
      return type.load(bytes, params_.loss_path.text, replicas_.weights(0).scalar_type(),
                       *context.node.signatures[kPrediction].y, *batch.y, batch.integer_target);
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("{}: loss {}: {}", context.node.id, type.name, error.what()));
    }
  }

  void forward(const Batch& batch) {
    const std::span<const Tag> rows = batch.rows;
    const auto streams = static_cast<std::size_t>(batch.x.size(1));
    if (!carries_ || recurrent_.size() == 0) return forward(batch, state_, {});
    state_ = recurrent_.gather(rows.first(streams));
    runs_ = recurrent_.runs_of(rows.first(streams));
    at::Tensor left = state_;
    forward(batch, left, runs_);
    recurrent_.scatter(rows.last(streams), left);
  }

  // `state` is what the rows' streams have left, and then what these leave; undefined: every sample begins anew.
  void forward(const Batch& batch, at::Tensor& state, std::span<const std::uint64_t> runs) {
    at::Tensor x = batch.x, y = batch.y;
    const bool masked = std::ranges::any_of(batch.rows, [](const Tag& t) { return t.weight == 0; });
    if (masked) {
      x = x.clone();
      y = y.clone();
      mask_rows(batch.rows, x, y);
    }
    targets_ = tensor_values(y);
    kernel_ = recurrent_.size() == 0 && loss_.row
                  ? replicas_.model(lane_).kernel(static_cast<std::int64_t>(batch.rows.size()))
                  : nullptr;
    if (kernel_ != nullptr) {
      prediction_ = kernel_->forward(x, {dropout_, batch.rows, !evaluating_});
      return compare_rows(batch.rows);
    }
    const Pass pass{dropout_, batch.rows, !evaluating_};
    Model& model = replicas_.model(lane_);
    prediction_ = state.defined() ? forward_from(model, x, state, runs, pass) : forward_afresh(model, x, pass);
    row_losses_ = counting_losses(loss_, params_.delta, prediction_, y, batch.rows);
    losses_ = losses_of_rows(row_losses_, batch.rows);
  }

  // The losses of the kernel's prediction, and w · ∂r/∂prediction; both are 0 where the weight is.
  void compare_rows(std::span<const Tag> rows) {
    losses_.assign(rows.size(), 0.0);
    const std::vector<double> predictions = tensor_values(prediction_);
    const std::size_t width = predictions.size() / rows.size();
    slopes_.assign(predictions.size(), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].weight == 0) continue;
      const std::span slopes(&slopes_[i * width], width);
      losses_[i] = loss_.row(std::span(predictions).subspan(i * width, width), target(i), params_.delta, slopes);
      for (double& slope : slopes) slope *= rows[i].weight;
    }
  }

  // The elements of a row's y, 0 where the row does not count.
  std::span<const double> target(std::size_t row) const {
    const std::size_t width = targets_.size() / losses_.size();
    return std::span(targets_).subspan(row * width, width);
  }

  // Adds the gradients of Σ w·r to the leaves'. Where nothing counts there is nothing to add: 0 · ∂r might be NaN.
  void add_gradients(std::span<const Tag> rows) {
    if (std::ranges::all_of(rows, [](const Tag& t) { return t.weight == 0; })) return;
    if (kernel_ != nullptr) return kernel_->backward(slopes_);
    weighted_sum(row_losses_, rows).backward();
  }

  void backward(const Batch& batch, at::Tensor& bucket) {
    const Tick begin = times_ != nullptr ? ticks() : 0;
    forward(batch);
    if (times_ != nullptr) times_->add_forward(lane_, ticks() - begin);
    add_gradients(batch.rows);
    const BucketLayout& layout = replicas_.layout();
    bool finite = true;
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      const Tag& row = batch.rows[i];
      if (row.weight == 0) continue;
      add(layout.loss_at(row.stream), row.weight * losses_[i]);
      add(layout.weight_at(row.stream), row.weight);
      finite = finite && std::isfinite(losses_[i]);
    }
    finite = finite && all_finite(bucket, layout.parameters);
    flag(Flag::kNonFinite, !finite);
    if (!finite && blames_) find_parts_to_blame(batch, bucket);
    flag(Flag::kEnded, std::ranges::all_of(batch.rows, [](const Tag& t) { return t.ended; }));
  }

  // Runs the parts of a fused lane one by one, from the same states. The bucket is as it was in the end.
  void find_parts_to_blame(const Batch& batch, at::Tensor& bucket) {
    const at::Tensor prediction = prediction_, whole = bucket.clone();
    const std::vector<double> losses = losses_;
    std::int64_t begin = 0;
    for (int p = 0; p < static_cast<int>(parts_.size()); ++p) {
      const auto count = static_cast<std::int64_t>(parts_[p].streams.size());
      const Batch part = columns(batch, begin, count);
      at::Tensor state = state_.defined() ? state_.narrow(0, begin, count) : at::Tensor();
      std::span<const std::uint64_t> runs;
      if (state.defined()) runs = std::span(runs_).subspan(static_cast<std::size_t>(begin), parts_[p].streams.size());
      begin += count;
      bucket.zero_();
      forward(part, state, runs);
      add_gradients(part.rows);
      const bool finite = std::ranges::all_of(losses_, [](double loss) { return std::isfinite(loss); });
      if (!finite || !all_finite(bucket, replicas_.layout().parameters)) to_blame_.push_back(p);
    }
    bucket.copy_(whole);
    prediction_ = prediction;
    losses_ = losses;
  }

  // Some of the streams of a batch.
  static Batch columns(const Batch& batch, std::int64_t begin, std::int64_t count) {
    Batch some{.x = batch.x.narrow(1, begin, count).contiguous(), .y = batch.y.narrow(1, begin, count).contiguous()};
    for (std::int64_t t = 0; t < batch.x.size(0); ++t) {
      const auto rows =
          std::span(batch.rows)
              .subspan(static_cast<std::size_t>(t * batch.x.size(1) + begin), static_cast<std::size_t>(count));
      some.rows.insert(some.rows.end(), rows.begin(), rows.end());
    }
    return some;
  }

  void take(DeviceLane::Result result) {
    prediction_ = std::move(result.prediction);
    losses_ = std::move(result.losses);
  }

  void predict(Firing& firing, std::shared_ptr<const Batch> batch) {
    firing.emit(kPrediction, Packet::of(Prediction{lane_, firing.index(), weights_.step, prediction_.detach(),
                                                   std::move(batch), losses_}));
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
  Replicas& replicas_;
  const LossType loss_;
  RunControl* const control_;
  RecurrentState& recurrent_;
  const Dropout* const dropout_;  // null: evaluating
  LaneTimes* const times_;        // null: nobody asks
  const bool carries_;
  const bool evaluating_, predicts_;
  DeviceLane* device_ = nullptr;            // null: the lane is on the host
  int lane_ = 0;                            // of all processes' lanes
  std::span<const LaneTable::Part> parts_;  // that are fused in it
  bool blames_ = false;                     // it is to be told which of several is not finite
  Weights weights_;                         // the newest token
  at::Tensor prediction_, row_losses_;      // of the firing in progress; row_losses_ of the rows that count
  at::Tensor state_;                        // what the rows' streams had left before it; undefined: not carried
  std::vector<std::uint64_t> runs_;         // by which runs they left it
  std::vector<int> to_blame_;               // parts of the firing in progress
  std::vector<double> losses_, targets_;    // a value a row; a row's elements, row by row
  Kernel* kernel_ = nullptr;                // of the firing in progress; null: autograd
  std::vector<double> slopes_;              // w · ∂r/∂prediction, for the kernel
};

// Why this lane's rows are not computed together with those of other lanes; "": they can be. `made`: null before.
std::string reason_to_be_alone(const RunSettings& run, const PlanModel& model, const ModelType* type,
                               const Model* made) {
  if (type == nullptr || !type->plugin.empty())
    return fmt::format("the model \"{}\" is a plugin's, which may mix the rows of a batch", model.name);
  if ((made != nullptr && !made->buffers().empty()) || (type->load && !run.buffers.empty()))
    return fmt::format("the model \"{}\" keeps statistics of its batches", model.name);
  return "";
}

// Works out the model for this lane's batches: parameters, bytes a lane.
void infer(InferContext& context) {
  const auto params = context.params<Compute::Params>();
  PlanNode& node = context.node;
  node.signatures.assign(2, Signature{.streams = context.inputs[0].streams});
  std::vector<std::string> names;
  for (const PlanModel& m : context.plan.models) names.push_back(m.name);
  const auto model = std::ranges::find(context.plan.models, params.model, &PlanModel::name);
  if (model == context.plan.models.end()) {
    return context.problem(
        fmt::format("there is no model \"{}\" in \"models\"{}", params.model, did_you_mean(params.model, names)),
        "model");
  }
  if (node.gpu() && !context.plan.run.buffers.empty()) {
    context.problem(
        "run.buffers keeps the statistics of batches on the host, and this lane is on a GPU; normalise each row (norm "
        "\"layer\"), or train on the host (device \"cpu:*\")");
  }
  const ModelType* const type = find_model_type(model->type);
  node.alone = reason_to_be_alone(context.plan.run, *model, type, nullptr);
  const Signature& batch = context.inputs[0];
  if (!batch.x || !batch.y) return;  // unknown until run
  try {
    std::optional<Shape> asked;
    if (const Shape outputs = output_shape(model->params, {}); !outputs.empty()) asked = outputs;
    const LossType* const loss = find_loss_type(params.loss);
    if (loss == nullptr) return;  // a plugin's, of which nothing was loaded
    const Shape output = loss->output_shape(*batch.y, batch.integer_target, asked);
    if (batch.classes && element_count(output) < *batch.classes) {
      return context.problem(
          fmt::format("the targets are {} classes, but model \"{}\" gives {} scores; give it outputs {}",
                      *batch.classes, model->name, element_count(output), *batch.classes));
    }
    node.signatures[kPrediction].y = output;
    if (!params.loss_path.text.empty()) check_archive(params.loss_path.text);
    if (type == nullptr) return;  // as above
    if (type->load) {
      type->check(model->params, *batch.x, output);
      node.facts = {{"model", model->type}, {"parameters", "unknown until run"}};
      return;
    }
    const std::unique_ptr<Model> made = type->make(model->params, *batch.x, output);
    node.alone = reason_to_be_alone(context.plan.run, *model, type, made.get());
    constexpr std::int64_t kMostParameters = std::int64_t{1} << 40;
    if (made->parameter_count() > kMostParameters) {
      throw Error(Exit::kPipeline,
                  fmt::format("{} parameters are more than any memory holds", made->parameter_count()));
    }
    if (!made->buffers().empty()) {
      const auto rows = static_cast<std::int64_t>(batch.streams.size()) * context.plan.run.tbptt;
      if (const std::string why = buffers_problem(context.plan.run, model->name, rows); !why.empty())
        context.problem(why);
    }
    const BucketLayout layout(made->parameters(), static_cast<int>(context.plan.with_role(Role::kSource).size()),
                              static_cast<int>(context.plan.with_role(Role::kCompute).size()),
                              context.plan.run.dtype == "float64" ? at::kDouble : at::kFloat);
    node.signatures[kGradient].parameters = made->parameter_count();
    node.facts = {{"model", model->type},
                  {"parameters", made->parameter_count()},
                  {"bytes_per_lane", layout.size() * (context.plan.run.dtype == "float64" ? 8 : 4)}};
  } catch (const Error& error) {
    if (error.exit() == Exit::kData) return context.data_problem(error.what());
    context.problem(fmt::format("model \"{}\" ({}) cannot take what arrives here, {}: {}", model->name, model->type,
                                batch.text(), error.what()));
  }
}

}  // namespace

NodeType compute(const std::vector<PartType>& losses) {
  std::vector<std::string> names;
  for (const PartType& loss : losses) names.push_back(loss.name);
  NodeType type = node_type<Compute>("compute", "a lane: forward, loss and backward of a batch on one device",
                                     Role::kCompute, {{"batch", "batch"}, {"weights", "weights"}},
                                     {{"gradient", "gradient"}, {"prediction", "prediction"}}, infer);
  type.fields = [names](Fields& f) { Compute::Params().fields(f, names); };
  type.has_device = true;
  return type;
}

}  // namespace lanewise
