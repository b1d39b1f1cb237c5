// lorenz: the Lorenz system, a chaotic stream whose next state the present one determines.
//
//   x' = sigma (y - x)      y' = x (rho - z) - y      z' = x y - beta z
//
// One sample is one step of dt by the classical Runge-Kutta rule: x holds the state before it, y the state after it (or
// the coordinates in `target`), both times `scale`. Each run begins on the attractor, at a point that the seed decides.
#include <array>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/source.h"

namespace lanewise {
namespace {

using State = std::array<double, 3>;

constexpr double kSettleTime = 20;  // how long a run is integrated before its first sample

class Lorenz final : public Source {
 public:
  struct Params : GeneratorParams {
    double dt = 0.02, sigma = 10, rho = 28, beta = 8.0 / 3, scale = 0.05;
    std::vector<std::string> target = {"x", "y", "z"};

    void fields(Fields& f) {
      f.add("target", &target, "coordinates of the next state to forecast").one_of({"x", "y", "z"});
      f.add("scale", &scale, "the state is multiplied by this").above(0);
      f.add("dt", &dt, "time between two samples").above(0).at_most(0.1);
      f.add("sigma", &sigma, "Prandtl number").at_least(0);
      f.add("rho", &rho, "Rayleigh number").between(0, 200);
      f.add("beta", &beta, "shape of the cells").at_least(0);
      GeneratorParams::fields(f);
    }
  };

  Lorenz(const Params& params, const NodeContext& context) : Source(params, context), params_(params) {
    for (const std::string& name : params.target) columns_.push_back(static_cast<std::size_t>(name[0] - 'x'));
  }

 private:
  Given next(Sample& sample) override {
    if (!begun_) begin();
    State now = state_;
    for (double& v : now) v *= params_.scale;
    sample.x = make_x(now, {3});
    state_ = step(state_);
    std::vector<double> target;
    for (const std::size_t c : columns_) target.push_back(state_[c] * params_.scale);
    sample.y = make_y(target, {static_cast<std::int64_t>(target.size())});
    return Given::kSample;
  }

  void begin() {
    Random uniform = random();
    for (double& v : state_) v = 1 + uniform.uniform(-0.5, 0.5);
    for (double t = 0; t < kSettleTime; t += params_.dt) state_ = step(state_);
    begun_ = true;
  }

  State slope(const State& s) const {
    return {params_.sigma * (s[1] - s[0]), s[0] * (params_.rho - s[2]) - s[1], s[0] * s[1] - params_.beta * s[2]};
  }

  State step(const State& s) const {
    const auto ahead = [&s](const State& k, double by) {
      return State{s[0] + by * k[0], s[1] + by * k[1], s[2] + by * k[2]};
    };
    const double dt = params_.dt;
    const State a = slope(s), b = slope(ahead(a, dt / 2)), c = slope(ahead(b, dt / 2)), d = slope(ahead(c, dt));
    State result = s;
    for (std::size_t i = 0; i < 3; ++i) result[i] += dt / 6 * (a[i] + 2 * b[i] + 2 * c[i] + d[i]);
    return result;
  }

  void rewind() override { begun_ = false; }
  nlohmann::json save() const override { return {{"begun", begun_}, {"state", state_}}; }
  void load(const nlohmann::json& saved) override {
    begun_ = saved.at("begun");
    state_ = saved.at("state").get<State>();
  }

  const Params params_;
  std::vector<std::size_t> columns_;  // of the target
  bool begun_ = false;                // this run has a state
  State state_{};
};

void infer(InferContext& context) {
  const auto params = context.params<Lorenz::Params>();
  if (params.target.empty()) context.problem("lorenz needs at least one coordinate to forecast", "target");
  const auto width = static_cast<std::int64_t>(params.target.size());
  Signature signature{.x = Shape{3}, .y = Shape{width}, .streams = {context.node.id}};
  params.describe(signature);
  context.node.signatures = {signature};
}

}  // namespace

NodeType lorenz() {
  return node_type<Lorenz>("lorenz", "the chaotic Lorenz system: from a state to the next", Role::kSource, {},
                           {{"sample", "sample"}}, infer);
}

}  // namespace lanewise
