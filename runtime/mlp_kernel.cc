// The mlp's forward and backward, layer by layer, for float32 and float64.
//
//   h_0 = x;  z_i = h_i W_iᵀ + b_i;  h_{i+1} = mask_i · f(z_i);  prediction = the last z
//
// Backward, with g the gradient of z_i:  ∂W_i += gᵀh_i,  ∂b_i += Σ g,  gradient of h_i = g W_i.
#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "runtime/dense_loops.h"
#include "runtime/dropout.h"
#include "runtime/kernel.h"
#include "runtime/model.h"

namespace lanewise {
namespace {

// Of a dense tensor of T.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

enum class Activation { kRelu, kTanh, kGelu, kSilu };

Activation activation(const std::string& name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "tanh") return Activation::kTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "silu") return Activation::kSilu;
  throw Error(Exit::kInternal, "no activation " + name);
}

template <class T>
T logistic(T z) {
  return 1 / (1 + std::exp(-z));
}
template <class T>
T normal_cdf(T z) {
  return static_cast<T>(0.5) * (1 + std::erf(z / std::numbers::sqrt2_v<T>));
}

template <class T>
T value(Activation f, T z) {
  switch (f) {
    case Activation::kRelu:
      return z > 0 || std::isnan(z) ? z : T{0};
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kGelu:
      return z * normal_cdf(z);
    case Activation::kSilu:
      return z * logistic(z);
  }
  return z;
}

template <class T>
T slope(Activation f, T z) {
  switch (f) {
    case Activation::kRelu:
      return z > 0 ? T{1} : T{0};
    case Activation::kTanh: {
      const T t = std::tanh(z);
      return 1 - t * t;
    }
    case Activation::kGelu: {
      const T density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
      return normal_cdf(z) + z * density;
    }
    case Activation::kSilu: {
      const T s = logistic(z);
      return s * (1 + z * (1 - s));
    }
  }
  return 1;
}

template <class T>
class MlpKernel final : public Kernel {
 public:
  MlpKernel(MlpSettings settings, const std::vector<at::Tensor>& leaves)
      : settings_(std::move(settings)), activation_(activation(settings_.activation)) {
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
      if (!last) layer.z.resize(rows_ * layer.out());
      T* const z = last ? data_of<T>(prediction) : layer.z.data();
      loops_.forward(rows_, layer.in(), layer.out(), input_of(i), data_of<const T>(layer.weight),
                     data_of<const T>(layer.bias), z);
      if (last) break;
      layer.h.resize(layer.z.size());
      std::ranges::transform(layer.z, layer.h.begin(), [f = activation_](T v) { return value(f, v); });
      layer.mask = at::Tensor();
      if (settings_.dropout == 0 || pass.dropout == nullptr) continue;
      layer.mask = pass.dropout->mask(pass.rows, static_cast<int>(i), {layer.out()}, settings_.dropout, x.scalar_type())
                       .contiguous();
      scale_by_mask(layer.h, layer);
    }
    return prediction;
  }

  void backward(std::span<const double> gradient) override {
    gradient_.assign(gradient.begin(), gradient.end());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const Layer& layer = layers_[i];
      if (i > 0) below_.resize(rows_ * layer.in());
      loops_.backward(rows_, layer.in(), layer.out(), input_of(i), data_of<const T>(layer.weight), gradient_.data(),
                      data_of<T>(layer.weight.grad()), data_of<T>(layer.bias.grad()), i > 0 ? below_.data() : nullptr);
      if (i == 0) break;
      const Layer& under = layers_[i - 1];
      if (under.mask.defined()) scale_by_mask(below_, under);
      std::ranges::transform(below_, under.z, below_.begin(), [f = activation_](T g, T z) { return g * slope(f, z); });
      std::swap(gradient_, below_);
    }
  }

 private:
  struct Layer {
    at::Tensor weight, bias;
    std::vector<T> z, h;  // [rows, out], of the last forward
    at::Tensor mask;      // undefined: nothing is dropped

    std::int64_t in() const { return weight.size(1); }
    std::int64_t out() const { return weight.size(0); }
  };

  const T* input_of(std::size_t i) const { return i == 0 ? data_of<const T>(x_) : layers_[i - 1].h.data(); }

  static void scale_by_mask(std::vector<T>& values, const Layer& layer) {
    std::ranges::transform(values, std::span(data_of<const T>(layer.mask), values.size()), values.begin(),
                           std::multiplies<>());
  }

  const MlpSettings settings_;
  const Activation activation_;
  const DenseLoops<T>& loops_ = dense_loops<T>();
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
