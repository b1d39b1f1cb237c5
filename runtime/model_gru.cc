// gru: gated recurrent layers over the time steps of a sample, and a linear head on the last step.
//
//   r = σ(Wir x + bir + Whr h + bhr)     z = σ(Wiz x + biz + Whz h + bhz)
//   n = tanh(Win x + bin + r·(Whn h + bhn))     h' = (1 - z)·n + z·h     prediction = W h' + b
//
// The rows of the weights are in the order r, z, n. The state is zero at the start of each sample.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/model.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class Gru final : public Model {
 public:
  struct Params {
    std::int64_t hidden = 32, layers = 1;
    ModelSize size;

    void fields(Fields& f) {
      f.add("hidden", &hidden, "width of the recurrent state").at_least(1);
      f.add("layers", &layers, "recurrent layers, one on top of the other").at_least(1);
      size.fields(f);
    }
  };

  Gru(const Params& params, const Shape& input, const Shape& output) : hidden_(params.hidden), output_(output) {
    if (input.empty() || input.size() > 2) {
      throw Error(Exit::kPipeline,
                  fmt::format("gru takes samples x [time, features] or [features], not {}", to_string(input)));
    }
    params.size.check("gru", input.back(), element_count(output));
    const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
    std::int64_t in = input.back();
    for (std::int64_t layer = 0; layer < params.layers; ++layer) {
      parameters_.push_back({fmt::format("rnn.weight_ih_l{}", layer), {3 * hidden_, in}, bound});
      parameters_.push_back({fmt::format("rnn.weight_hh_l{}", layer), {3 * hidden_, hidden_}, bound});
      parameters_.push_back({fmt::format("rnn.bias_ih_l{}", layer), {3 * hidden_}, bound});
      parameters_.push_back({fmt::format("rnn.bias_hh_l{}", layer), {3 * hidden_}, bound});
      in = hidden_;
    }
    parameters_.push_back({"head.weight", {element_count(output), hidden_}, bound});
    parameters_.push_back({"head.bias", {element_count(output)}, bound});
  }

  at::Tensor forward(const at::Tensor& x) const override {
    Shape shape = {x.size(0), x.size(1)};
    shape.insert(shape.end(), output_.begin(), output_.end());
    const std::int64_t rows = shape[0] * shape[1], times = x.dim() == 4 ? x.size(2) : 1;
    // Time first, so that what one step needs lies together.
    at::Tensor sequence = x.reshape({rows, times, -1}).transpose(0, 1).contiguous();
    const std::size_t head = leaves_.size() - 2;
    std::vector<at::Tensor> states;
    for (std::size_t first = 0; first < head; first += 4) {
      states = layer(sequence, std::span(leaves_).subspan(first, 4));
      if (first + 4 < head) sequence = at::stack(states);
    }
    return at::linear(states.back(), leaves_[head], leaves_[head + 1]).view(shape);
  }

 private:
  // sequence [time, rows, features] -> the state [rows, hidden] after each time step.
  std::vector<at::Tensor> layer(const at::Tensor& sequence, std::span<const at::Tensor> leaves) const {
    const std::vector<at::Tensor> from_x =
        at::linear(sequence, leaves[0], leaves[2]).split_with_sizes({2 * hidden_, hidden_}, 2);
    const std::vector<at::Tensor> gates_x = from_x[0].unbind(0), new_x = from_x[1].unbind(0);
    at::Tensor h = at::zeros({sequence.size(1), hidden_}, sequence.options());
    std::vector<at::Tensor> states;
    for (std::size_t t = 0; t < gates_x.size(); ++t) {
      const std::vector<at::Tensor> from_h =
          at::linear(h, leaves[1], leaves[3]).split_with_sizes({2 * hidden_, hidden_}, 1);
      const std::vector<at::Tensor> gates = at::sigmoid(gates_x[t] + from_h[0]).chunk(2, 1);  // r, z
      h = at::lerp(at::tanh(at::addcmul(new_x[t], gates[0], from_h[1])), h, gates[1]);
      states.push_back(h);
    }
    return states;
  }

  const std::int64_t hidden_;
  const Shape output_;
};

}  // namespace

ModelType gru_model() {
  return make_model_type<Gru>("gru", "recurrent layers over the time steps of a sample, and a linear head");
}

}  // namespace lanewise
