// linear: prediction = W x + b over all values of a sample.
#include <ATen/ATen.h>

#include "runtime/model.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class Linear final : public Model {
 public:
  struct Params {
    std::string kernel = "auto";
    ModelSize size;

    void fields(Fields& f) {
      add_kernel(f, &kernel);
      size.fields(f);
    }
  };

  Linear(const Params& params, const Shape& input, const Shape& output)
      : settings_{.output = output}, wanted_(params.kernel) {
    const std::int64_t in = element_count(input), out = element_count(output);
    params.size.check("linear", in, out);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    parameters_ = {{"weight", {out, in}, bound}, {"bias", {out}, bound}};
  }

  at::Tensor forward(const at::Tensor& x, at::Tensor&, const Pass&) const override {
    const Shape shape = prediction_shape(x, settings_.output);
    return at::linear(x.reshape({shape[0] * shape[1], -1}), leaves_[0], leaves_[1]).view(shape);
  }

  Kernel* kernel(std::int64_t rows) override { return mlp_kernel(wanted_, rows, settings_); }

 private:
  const MlpSettings settings_;  // of no hidden layer
  const std::string wanted_;    // kernel
};

}  // namespace

ModelType linear_model() { return make_model_type<Linear>("linear", "one linear map of all values of a sample"); }

}  // namespace lanewise
