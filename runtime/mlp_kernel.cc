// The mlp's forward and backward, layer by layer, for float32 and float64.
//
//   h_0 = x;  z_i = h_i W_iᵀ + b_i;  h_{i+1} = mask_i · f(z_i);  prediction = the last z
//
// Backward, with g the gradient of z_i:  ∂W_i += gᵀh_i,  ∂b_i += Σ g,  gradient of h_i = g W_i.
#include <ATen/ATen.h>

#include "runtime/dropout.h"
#include "runtime/kernel.h"
#include "runtime/loops.h"
#include "runtime/model.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

Activation activation(const std::string& name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "tanh") return Activation::kTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "silu") return Activation::kSilu;
  throw Error(Exit::kInternal, "no activation " + name);
}

template <class T>
class MlpKernel final : public Kernel {
 public:
  MlpKernel(MlpSettings settings, const std::vector<at::Tensor>& leaves) : settings_(std::move(settings)) {
    for (std::size_t i = 0; i < leaves.size(); i += 2)
      layers_.push_back({.weight = leaves[i], .bias = leaves[i + 1], .z = {}, .h = {}, .mask = {}});
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) override {
    rows_ = x.size(0) * x.size(1);
    x_ = x.contiguous();
    at::Tensor prediction = at::empty(prediction_shape(x, settings_.output), x.options());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const bool last = i + 1 == layers_.size();
      if (!last) layer.z.resize(padded(rows_ * layer.out()));
      T* const z = last ? data_of<T>(prediction) : layer.z.data();
      loops_.forward(rows_, layer.in(), layer.out(), input_of(i), data_of<const T>(layer.weight),
                     data_of<const T>(layer.bias), z);
      if (last) break;
      layer.h.resize(layer.z.size());
      activate_(rows_ * layer.out(), layer.z.data(), layer.h.data());
      layer.mask = at::Tensor();
      if (settings_.dropout == 0 || pass.dropout == nullptr) continue;
      layer.mask = pass.dropout->mask(pass.rows, static_cast<int>(i), {layer.out()}, settings_.dropout, x.scalar_type())
                       .contiguous();
      scale_by_mask(layer.h, layer);
    }
    return prediction;
  }

  void backward(std::span<const double> gradient) override {
    gradient_.resize(gradient.size());
    std::ranges::copy(gradient, gradient_.begin());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const Layer& layer = layers_[i];
      if (i > 0) below_.resize(padded(rows_ * layer.in()));
      loops_.backward(rows_, layer.in(), layer.out(), input_of(i), data_of<const T>(layer.weight), gradient_.data(),
                      data_of<T>(layer.weight.grad()), data_of<T>(layer.bias.grad()), i > 0 ? below_.data() : nullptr);
      if (i == 0) break;
      const Layer& under = layers_[i - 1];
      if (under.mask.defined()) scale_by_mask(below_, under);
      back_activate_(rows_ * layer.in(), under.z.data(), below_.data());
      std::swap(gradient_, below_);
    }
  }

 private:
  struct Layer {
    at::Tensor weight, bias;
    std::vector<T> z, h;  // [rows, out] and padding, of the last forward
    at::Tensor mask;      // undefined: nothing is dropped

    std::int64_t in() const { return weight.size(1); }
    std::int64_t out() const { return weight.size(0); }
  };

  const T* input_of(std::size_t i) const { return i == 0 ? data_of<const T>(x_) : layers_[i - 1].h.data(); }

  static void scale_by_mask(std::vector<T>& values, const Layer& layer) {
    const std::span<T> counting = std::span(values).first(static_cast<std::size_t>(layer.mask.numel()));
    std::ranges::transform(counting, std::span(data_of<const T>(layer.mask), counting.size()), counting.begin(),
                           std::multiplies<>());
  }

  const MlpSettings settings_;
  const Loops<T>& loops_ = loops<T>();
  const std::size_t function_ = static_cast<std::size_t>(activation(settings_.activation));
  void (*const activate_)(std::int64_t, const T*, T*) = loops_.activate[function_];
  void (*const back_activate_)(std::int64_t, const T*, T*) = loops_.back_activate[function_];
  std::vector<Layer> layers_;
  std::int64_t rows_ = 0;
  at::Tensor x_;
  std::vector<T> gradient_, below_;  // of a layer's z, and of what is below it
};

}  // namespace

std::unique_ptr<Kernel> make_mlp_kernel(MlpSettings settings, const std::vector<at::Tensor>& leaves) {
  if (leaves[0].scalar_type() == at::kDouble) return std::make_unique<MlpKernel<double>>(std::move(settings), leaves);
  return std::make_unique<MlpKernel<float>>(std::move(settings), leaves);
}

}  // namespace lanewise
