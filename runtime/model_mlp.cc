// mlp: linear layers with an activation between them, over all values of a sample.
//
//   x -> W0 x + b0 -> norm -> activation -> dropout -> W2 · + b2 -> … -> prediction
//
// Parameters are numbered as in a sequence of layers: linear, activation, linear, …; with a norm: linear, norm,
// activation, linear, ….
//
//   norm `batch`   (h - mean) / sqrt(variance + 1e-5) · weight + bias, over the rows of a batch, fillers aside, as long
//                  as there are two; otherwise, and in an evaluation, by the running statistics: after each batch
//                  running ← 0.9 running + 0.1 (mean, unbiased variance)            [BatchNorm1d of PyTorch]
//   norm `layer`   the same formula over the values of each row                     [LayerNorm of PyTorch]
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "runtime/dropout.h"
#include "runtime/model.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

using Activation = at::Tensor (*)(const at::Tensor&);

Activation activation(const std::string& name) {
  if (name == "relu") return [](const at::Tensor& x) { return at::relu(x); };
  if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  if (name == "gelu") return [](const at::Tensor& x) { return at::gelu(x); };
  if (name == "silu") return [](const at::Tensor& x) { return at::silu(x); };
  throw Error(Exit::kInternal, "no activation " + name);
}

constexpr double kEps = 1e-5, kMomentum = 0.1;

// running_mean and running_var are changed in training.
at::Tensor batch_norm(const at::Tensor& h, const at::Tensor& weight, const at::Tensor& bias, at::Tensor running_mean,
                      at::Tensor running_var, const Pass& pass) {
  const auto fixed = [&] {
    // Copies: another lane's buffers may change before the backward, and share a version counter with these.
    return at::batch_norm(h, weight, bias, running_mean.clone(), running_var.clone(), /*training=*/false, kMomentum,
                          kEps, /*cudnn_enabled=*/false);
  };
  if (!pass.training) return fixed();
  std::vector<std::int64_t> real;
  for (std::size_t i = 0; i < pass.rows.size(); ++i) {
    if (!pass.rows[i].filler) real.push_back(static_cast<std::int64_t>(i));
  }
  if (real.size() < 2) return fixed();
  const bool all = real.size() == pass.rows.size();
  const at::Tensor index = all ? at::Tensor() : at::tensor(real, at::kLong).to(h.device());
  const at::Tensor rows = all ? h : h.index_select(0, index);
  {
    const c10::NoGradGuard no_gradient;
    const auto [variance, mean] = at::var_mean(rows, /*dim=*/{0}, /*unbiased=*/true);
    running_mean.mul_(1 - kMomentum).add_(mean, kMomentum);
    running_var.mul_(1 - kMomentum).add_(variance, kMomentum);
  }
  const at::Tensor out = at::batch_norm(rows, weight, bias, {}, {}, /*training=*/true, kMomentum, kEps, false);
  return all ? out : at::zeros_like(h).index_copy(0, index, out);
}

class Mlp final : public Model {
 public:
  struct Params {
    std::vector<std::int64_t> hidden = {64, 64};
    std::string activation = "relu";
    std::string norm = "none";
    double dropout = 0;
    std::string kernel = "auto";
    ModelSize size;

    void fields(Fields& f) {
      f.add("hidden", &hidden, "width of each hidden layer").between(1, kMostWidth);
      f.add("activation", &activation, "between the layers").one_of({"relu", "tanh", "gelu", "silu"});
      f.add("norm", &norm,
            "of each hidden layer before its activation: over the batch (needs run.buffers), or over a row")
          .one_of({"none", "batch", "layer"});
      add_dropout(f, &dropout, "share of the values of each hidden layer that training drops");
      if (dropout > 0 && hidden.empty()) {
        f.problem("dropout", "dropout acts on hidden layers and there are none; give hidden a width, or leave it out");
      }
      add_kernel(f, &kernel);
      if (kernel == "native" && norm != "none")
        f.problem("kernel", "the native kernel has no norm; leave one of them out");
      size.fields(f);
    }
  };

  Mlp(const Params& params, const Shape& input, const Shape& output)
      : activation_(activation(params.activation)),
        norm_(params.norm),
        settings_{params.activation, params.dropout, output},
        wanted_(params.kernel) {
    std::int64_t in = element_count(input);
    params.size.check("mlp", in, element_count(output));
    std::vector<std::int64_t> widths = params.hidden;
    widths.push_back(element_count(output));
    const std::size_t modules = norm_ == "none" ? 2 : 3;  // a hidden layer
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      parameters_.push_back({fmt::format("{}.weight", modules * i), {widths[i], in}, bound});
      parameters_.push_back({fmt::format("{}.bias", modules * i), {widths[i]}, bound});
      in = widths[i];
      if (norm_ == "none" || i + 1 == widths.size()) continue;
      const std::string name = std::to_string(modules * i + 1);
      parameters_.push_back({.name = name + ".weight", .shape = {in}, .mean = 1});
      parameters_.push_back({.name = name + ".bias", .shape = {in}});
      if (norm_ != "batch") continue;
      buffer_specs_.push_back({name + ".running_mean", {in}, 0, parameters_.size()});
      buffer_specs_.push_back({name + ".running_var", {in}, 1, parameters_.size()});
    }
  }

  std::string unrecordable() const override { return settings_.dropout > 0 ? kHostMasks : ""; }

  at::Tensor forward(const at::Tensor& x, at::Tensor&, const Pass& pass) const override {
    const Shape shape = prediction_shape(x, settings_.output);
    at::Tensor h = x.reshape({shape[0] * shape[1], -1});
    const std::size_t stride = norm_ == "none" ? 2 : 4;  // parameters of a hidden layer
    std::size_t i = 0;
    for (int layer = 0; i + 2 < leaves_.size(); i += stride, ++layer) {
      h = at::linear(h, leaves_[i], leaves_[i + 1]);
      h = activation_(normalized(h, i + 2, layer, pass));
      if (settings_.dropout > 0 && pass.dropout != nullptr)
        h = h * pass.dropout->mask(pass.rows, layer, {h.size(1)}, settings_.dropout, h.scalar_type()).to(h.device());
    }
    return at::linear(h, leaves_[i], leaves_[i + 1]).view(shape);
  }

  Kernel* kernel(std::int64_t rows) override {
    return norm_ == "none" ? mlp_kernel(wanted_, rows, settings_) : nullptr;
  }

 private:
  // `leaf`: where the norm's weight and bias are.
  at::Tensor normalized(const at::Tensor& h, std::size_t leaf, int layer, const Pass& pass) const {
    if (norm_ == "none") return h;
    if (norm_ == "layer") return at::layer_norm(h, {h.size(1)}, leaves_[leaf], leaves_[leaf + 1], kEps);
    return batch_norm(h, leaves_[leaf], leaves_[leaf + 1], buffers_[2 * layer], buffers_[2 * layer + 1], pass);
  }

  const Activation activation_;
  const std::string norm_;
  const MlpSettings settings_;
  const std::string wanted_;  // kernel
};

}  // namespace

ModelType mlp_model() { return make_model_type<Mlp>("mlp", "linear layers with an activation between them"); }

}  // namespace lanewise
