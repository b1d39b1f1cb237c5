// What gru and lstm share.
#include "runtime/recurrent.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "runtime/dropout.h"
#include "runtime/loops.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {

void RecurrentParams::fields(Fields& f) {
  f.add("hidden", &hidden, "width of the recurrent state").between(1, kMostWidth);
  f.add("layers", &layers, "recurrent layers, one on top of the other").between(1, 1024);
  add_dropout(f, &dropout, "share of the values between two recurrent layers that training drops");
  if (dropout > 0 && layers == 1) {
    f.problem("dropout",
              "dropout acts between recurrent layers and there is one; give layers 2 or more, or leave it out");
  }
  add_kernel(f, &kernel);
  size.fields(f);
}

Recurrent::Recurrent(const std::string& type, int gates, int parts, const Params& params, const Shape& input,
                     const Shape& output)
    : hidden_(params.hidden),
      layers_(params.layers),
      layer_state_(parts * params.hidden),
      gates_(gates),
      dropout_(params.dropout),
      kernel_(params.kernel),
      output_(output) {
  if (input.empty() || input.size() > 2) {
    throw Error(Exit::kPipeline,
                fmt::format("{} takes samples x [time, features] or [features], not {}", type, to_string(input)));
  }
  params.size.check(type, input.back(), element_count(output));
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
  std::int64_t in = input.back();
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    parameters_.push_back({fmt::format("rnn.weight_ih_l{}", layer), {gates * hidden_, in}, bound});
    parameters_.push_back({fmt::format("rnn.weight_hh_l{}", layer), {gates * hidden_, hidden_}, bound});
    parameters_.push_back({fmt::format("rnn.bias_ih_l{}", layer), {gates * hidden_}, bound});
    parameters_.push_back({fmt::format("rnn.bias_hh_l{}", layer), {gates * hidden_}, bound});
    in = hidden_;
  }
  parameters_.push_back({"head.weight", {element_count(output), hidden_}, bound});
  parameters_.push_back({"head.bias", {element_count(output)}, bound});
}

at::Tensor Recurrent::forward(const at::Tensor& x, at::Tensor& state, const Pass& pass) const {
  const std::int64_t k = x.size(0), n = x.size(1), times = x.dim() == 4 ? x.size(2) : 1;
  // Time first, so that what one step needs lies together.
  const auto by_time = [&](const at::Tensor& samples) {  // [k * n, times, …] or [k, n, times, …] -> [k * times, n, …]
    return samples.reshape({k, n, times, -1}).transpose(1, 2).reshape({k * times, n, -1});
  };
  const bool native = x.is_cpu() && !pass.recorded && takes_native(kernel_, n * gates_ * hidden_ * hidden_);
  at::Tensor sequence = by_time(x);
  std::vector<at::Tensor> states = state.split(layer_state_, 1);
  for (std::int64_t l = 0; l < layers_; ++l) {
    if (l > 0 && dropout_ > 0 && pass.dropout != nullptr) {
      const at::Tensor mask =
          pass.dropout->mask(pass.rows, static_cast<int>(l - 1), {times, hidden_}, dropout_, sequence.scalar_type());
      sequence = sequence * by_time(mask).to(sequence.device());
    }
    sequence = layer(sequence, std::span(leaves_).subspan(4 * l).first<4>(), states[l], native);
  }
  state = layers_ == 1 ? states[0] : at::cat(states, 1);
  const at::Tensor last = sequence.view({k, times, n, hidden_}).select(1, times - 1).reshape({k * n, hidden_});
  return at::linear(last, leaves_[4 * layers_], leaves_[4 * layers_ + 1]).view(prediction_shape(x, output_));
}

namespace {

// Of the weight and the bias of W values + b, by d, the gradient of that.
std::pair<at::Tensor, at::Tensor> dense_gradients(const at::Tensor& d, const at::Tensor& values) {
  const at::Tensor in = values.contiguous();
  const std::int64_t columns = values.size(2), out = d.size(2);
  const at::Tensor weight = at::zeros({out, columns}, d.options()), bias = at::zeros({out}, d.options());
  with_type(d, [&]<class T>(T) {
    loops<T>().backward(d.size(0) * d.size(1), columns, out, data_of<const T>(in), nullptr, data_of<const T>(d),
                        data_of<T>(weight), data_of<T>(bias), nullptr);
  });
  return {weight, bias};
}

}  // namespace

std::array<at::Tensor, 4> leaf_gradients(const at::Tensor& d_x, const at::Tensor& d_h, const at::Tensor& x,
                                         const at::Tensor& h, bool native) {
  if (native) {
    const auto [w_ih, b_ih] = dense_gradients(d_x, x);
    const auto [w_hh, b_hh] = dense_gradients(d_h, h);
    return {w_ih, w_hh, b_ih, b_hh};
  }
  const auto weight = [](const at::Tensor& d, const at::Tensor& values) {
    return at::mm(d.flatten(0, 1).t(), values.flatten(0, 1));
  };
  return {weight(d_x, x), weight(d_h, h), d_x.sum(at::IntArrayRef({0, 1})), d_h.sum(at::IntArrayRef({0, 1}))};
}

}  // namespace lanewise
