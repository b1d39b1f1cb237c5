// constant: the same value for ever, or a ramp of it: a stream whose every number one knows beforehand.
//
//   x = value + ramp * seq, `features` times        y = target, or the same as one of x
#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/source.h"

namespace lanewise {
namespace {

class Constant final : public Source {
 public:
  struct Params : GeneratorParams {
    std::int64_t features = 1;
    double value = 1, ramp = 0;
    std::optional<double> target;

    void fields(Fields& f) {
      f.add("features", &features, "values per sample").at_least(1);
      f.add("value", &value, "the value");
      f.add("ramp", &ramp, "added with every sample, over the whole training");
      f.add("target", &target, "the target; without it, it is the value");
      GeneratorParams::fields(f);
    }
  };

  Constant(const Params& params, const NodeContext& context) : Source(params, context), params_(params) {}

 private:
  Given next(Sample& sample) override {
    const double value = params_.value + params_.ramp * static_cast<double>(seq());
    values_.assign(static_cast<std::size_t>(params_.features), value);
    const double target = params_.target.value_or(value);
    sample.x = make_x(values_, {params_.features});
    sample.y = make_y({&target, 1}, {1});
    return Given::kSample;
  }
  void rewind() override {}
  nlohmann::json save() const override { return nullptr; }
  void load(const nlohmann::json&) override {}

  const Params params_;
  std::vector<double> values_;
};

void infer(InferContext& context) {
  const auto params = context.params<Constant::Params>();
  Signature signature{.x = Shape{params.features}, .y = Shape{1}, .streams = {context.node.id}};
  params.describe(signature);
  context.node.signatures = {signature};
}

}  // namespace

NodeType constant() {
  return node_type<Constant>("constant", "the same value for ever, or a ramp of it", Role::kSource, {},
                             {{"sample", "sample"}}, infer);
}

}  // namespace lanewise
