// mlp: linear layers with an activation between them, over all values of a sample.
//
//   x -> W0 x + b0 -> activation -> dropout -> W2 · + b2 -> … -> prediction      (even numbers, as in a sequence of
//   layers)
#include <ATen/ATen.h>
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

class Mlp final : public Model {
 public:
  struct Params {
    std::vector<std::int64_t> hidden = {64, 64};
    std::string activation = "relu";
    double dropout = 0;
    ModelSize size;

    void fields(Fields& f) {
      f.add("hidden", &hidden, "width of each hidden layer").between(1, kMostWidth);
      f.add("activation", &activation, "between the layers").one_of({"relu", "tanh", "gelu", "silu"});
      add_dropout(f, &dropout, "share of the values of each hidden layer that training drops");
      if (dropout > 0 && hidden.empty()) {
        f.problem("dropout", "dropout acts on hidden layers and there are none; give hidden a width, or leave it out");
      }
      size.fields(f);
    }
  };

  Mlp(const Params& params, const Shape& input, const Shape& output)
      : output_(output), activation_(activation(params.activation)), dropout_(params.dropout) {
    std::int64_t in = element_count(input);
    params.size.check("mlp", in, element_count(output));
    std::vector<std::int64_t> widths = params.hidden;
    widths.push_back(element_count(output));
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      parameters_.push_back({fmt::format("{}.weight", 2 * i), {widths[i], in}, bound});
      parameters_.push_back({fmt::format("{}.bias", 2 * i), {widths[i]}, bound});
      in = widths[i];
    }
  }

  at::Tensor forward(const at::Tensor& x, at::Tensor&, const Pass& pass) const override {
    Shape shape = {x.size(0), x.size(1)};
    shape.insert(shape.end(), output_.begin(), output_.end());
    at::Tensor h = x.reshape({shape[0] * shape[1], -1});
    for (std::size_t i = 0; i < leaves_.size(); i += 2) {
      if (i > 0) h = activation_(h);
      if (i > 0 && dropout_ > 0 && pass.dropout != nullptr) {
        const int layer = static_cast<int>(i / 2 - 1);
        h = h * pass.dropout->mask(pass.rows, layer, {h.size(1)}, dropout_, h.scalar_type()).to(h.device());
      }
      h = at::linear(h, leaves_[i], leaves_[i + 1]);
    }
    return h.view(shape);
  }

 private:
  const Shape output_;
  const Activation activation_;
  const double dropout_;
};

}  // namespace

ModelType mlp_model() { return make_model_type<Mlp>("mlp", "linear layers with an activation between them"); }

}  // namespace lanewise
