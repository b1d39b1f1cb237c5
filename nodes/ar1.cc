// ar1: a first-order autoregressive process, the plainest time-correlated stream.
//
//   x[t] = c * x[t-1] + sqrt(1 - c*c) * normal        (every x has unit variance, whatever c is)
//   y[t] = mean of x[t]
#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/source.h"

namespace lanewise {
namespace {

class Ar1 final : public Source {
 public:
  struct Params : GeneratorParams {
    std::int64_t features = 16;
    double correlation = 0.9;

    void fields(Fields& f) {
      f.add("features", &features, "values per sample").at_least(1);
      f.add("correlation", &correlation, "share of a sample carried into the next").between(-1, 1);
      GeneratorParams::fields(f);
    }
  };

  Ar1(const Params& params, const NodeContext& context)
      : Source(params, context), params_(params), fresh_(std::sqrt(1 - params.correlation * params.correlation)) {}

 private:
  Given next(Sample& sample) override {
    Random normal = random();
    const bool first = x_.empty();
    x_.resize(static_cast<std::size_t>(params_.features));
    double sum = 0;
    for (double& x : x_) {
      x = first ? normal.normal() : params_.correlation * x + fresh_ * normal.normal();
      sum += x;
    }
    const double mean = sum / static_cast<double>(params_.features);
    sample.x = make_x(x_, {params_.features});
    sample.y = make_y({&mean, 1}, {1});
    return Given::kSample;
  }
  void rewind() override { x_.clear(); }
  nlohmann::json save() const override { return x_; }
  void load(const nlohmann::json& saved) override { x_ = saved.get<std::vector<double>>(); }

  const Params params_;
  const double fresh_;     // share of the noise
  std::vector<double> x_;  // the last sample's; empty before the first of a run
};

void infer(InferContext& context) {
  const auto params = context.params<Ar1::Params>();
  Signature signature{.x = Shape{params.features}, .y = Shape{1}, .streams = {context.node.id}};
  params.describe(signature);
  context.node.signatures = {signature};
}

}  // namespace

NodeType ar1() {
  return node_type<Ar1>("ar1", "time-correlated Gaussian samples and their mean", Role::kSource, {},
                        {{"sample", "sample"}}, infer);
}

}  // namespace lanewise
