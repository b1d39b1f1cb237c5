// sine: a noisy sine, told by its own past.
//
//   s[t] = amplitude * sin(2 pi * (t / period + phase)) + noise * normal
//   x    = s[t], …, s[t + features - 1]        y = s[t + features]
//
//   { "id": "gen", "repeat": 16, "type": "sine", "each": { "period": 11 }, "params": { "noise": 0.1 } }
//
// A restart begins the wave again with new noise.
#include <deque>
#include <numbers>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/source.h"

namespace lanewise {
namespace {

class Sine final : public Source {
 public:
  struct Params : GeneratorParams {
    std::int64_t features = 8;
    double period = 20, amplitude = 1, phase = 0, noise = 0;

    void fields(Fields& f) {
      f.add("features", &features, "past values per sample").at_least(1);
      f.add("period", &period, "length of one wave").above(0).unit("samples");
      f.add("amplitude", &amplitude, "height of the wave");
      f.add("phase", &phase, "where the wave begins, as a share of its period");
      f.add("noise", &noise, "standard deviation of the noise on each value").at_least(0);
      GeneratorParams::fields(f);
    }
  };

  Sine(const Params& params, const NodeContext& context) : Source(params, context), params_(params) {}

 private:
  Given next(Sample& sample) override {
    const auto features = static_cast<std::size_t>(params_.features);
    if (values_.size() > features) values_.pop_front();
    while (values_.size() <= features) values_.push_back(draw());
    line_.assign(values_.begin(), values_.end());
    sample.x = make_x({line_.data(), features}, {params_.features});
    sample.y = make_y({line_.data() + features, 1}, {1});
    return Given::kSample;
  }

  double draw() {
    const double turns = std::fmod(static_cast<double>(t_++) / params_.period + params_.phase, 1.0);
    const double noise = params_.noise > 0 ? params_.noise * random_stream().at(drawn_).normal() : 0;
    ++drawn_;
    return params_.amplitude * std::sin(2 * std::numbers::pi * turns) + noise;
  }

  void rewind() override {
    t_ = 0;
    values_.clear();
  }
  nlohmann::json save() const override { return {{"t", t_}, {"drawn", drawn_}, {"values", values_}}; }
  void load(const nlohmann::json& saved) override {
    t_ = saved.at("t");
    drawn_ = saved.at("drawn");
    values_ = saved.at("values").get<std::deque<double>>();
  }

  const Params params_;
  std::uint64_t t_ = 0;        // values of this run so far
  std::uint64_t drawn_ = 0;    // values so far: the counter of the noise
  std::deque<double> values_;  // the newest features + 1
  std::vector<double> line_;   // the same in a row
};

void infer(InferContext& context) {
  const auto params = context.params<Sine::Params>();
  Signature signature{.x = Shape{params.features}, .y = Shape{1}, .streams = {context.node.id}};
  params.describe(signature);
  context.node.signatures = {signature};
}

}  // namespace

NodeType sine() {
  return node_type<Sine>("sine", "a noisy sine, told by its own past", Role::kSource, {}, {{"sample", "sample"}},
                         infer);
}

}  // namespace lanewise
