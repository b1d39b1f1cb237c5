// polynomial: a polynomial of degree 2 in the values of a sample, without mixed terms.
//
//   prediction = W x + V x² + b
#include <ATen/ops/linear.h>

#include <cmath>

#include "runtime/model.h"

namespace {

using namespace lanewise;

class Polynomial final : public Model {
 public:
  struct Params {
    ModelSize size;
    void fields(Fields& f) { size.fields(f); }
  };

  Polynomial(const Params& params, const Shape& input, const Shape& output) : output_(output) {
    const std::int64_t in = element_count(input), out = element_count(output);
    params.size.check("polynomial", in, out);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    parameters_ = {
        {"linear.weight", {out, in}, bound}, {"linear.bias", {out}, bound}, {"square.weight", {out, in}, bound}};
  }

  at::Tensor forward(const at::Tensor& x, at::Tensor&, const Pass&) const override {
    const at::Tensor rows = x.reshape({x.size(0) * x.size(1), -1});
    return at::linear(rows, leaves_[0], leaves_[1])
        .add(at::linear(rows.square(), leaves_[2]))
        .view(prediction_shape(x, output_));
  }

 private:
  const Shape output_;
};

}  // namespace

ModelType polynomial() {
  return make_model_type<Polynomial>("polynomial", "a polynomial of degree 2 in the values of a sample");
}
