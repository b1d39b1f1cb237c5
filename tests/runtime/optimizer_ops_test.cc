#include "runtime/optimizer_ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/random.h"
#include "tests/check.h"

using namespace lanewise;
using nlohmann::json;

namespace {

at::Tensor some(const std::string& id, std::int64_t count) {
  Random random(3, "test", id);
  at::Tensor values = at::empty({count}, at::kDouble);
  for (double& value : std::span(values.data_ptr<double>(), count)) value = random.normal();
  return values;
}

// The weights after 30 steps against changing gradients, by the product and by the formula.
struct Runs {
  at::Tensor ours, formula;
};

Runs run(const OptimizerParams& params, at::ScalarType dtype) {
  Runs runs{some("w", 1001).to(dtype), some("w", 1001)};
  const auto optimizer = make_flat_optimizer(params, runs.ours);
  const double decay = params.weight_decay.value_or(params.name == "adamw" ? 0.01 : 0);
  at::Tensor m = at::zeros({1001}, at::kDouble), v = at::zeros({1001}, at::kDouble);
  at::Tensor& w = runs.formula;
  for (int t = 1; t <= 30; ++t) {
    const double lr = 0.01 / t;
    const at::Tensor gradient = some(fmt::format("g{}", t), 1001), given = gradient.to(dtype), copy = given.clone();
    optimizer->step(runs.ours, given, lr);
    CHECK(at::equal(given, copy));
    if (params.name == "sgd") {
      const at::Tensor g = gradient + decay * w;
      m = params.momentum * m + g;
      w = w - lr * (params.nesterov ? g + params.momentum * m : m);
      continue;
    }
    const at::Tensor g = params.name == "adam" ? gradient + decay * w : gradient;
    if (params.name == "adamw") w = w * (1 - lr * decay);
    const double b1 = params.betas[0], b2 = params.betas[1];
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    w = w - lr * (m / (1 - std::pow(b1, t))) / ((v / (1 - std::pow(b2, t))).sqrt() + params.eps);
  }
  return runs;
}

std::string problems(const json& values) {
  std::vector<Problem> found;
  Fields fields({&values, "optimizer", [](const std::string&) { return Place{}; },
                 [](const std::string&) { return std::string(); }},
                found);
  OptimizerParams params;
  params.fields(fields);
  std::string text;
  for (const Problem& problem : found) text += problem.rule + "\n";
  return text;
}

}  // namespace

TEST_CASE("optimizer_ops: sgd, adam and adamw follow their formulas") {
  std::vector<OptimizerParams> all;
  for (const char* name : {"sgd", "adam", "adamw"}) {
    for (const std::optional<double> decay : {std::optional<double>(), std::optional<double>(0.1)}) {
      all.push_back({.name = name, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = decay});
    }
  }
  all.push_back({.name = "sgd", .momentum = 0.9, .weight_decay = 0.05});
  all.push_back({.name = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.05});
  for (const OptimizerParams& params : all) {
    CAPTURE(params.name);
    CAPTURE(params.momentum);
    CAPTURE(params.nesterov);
    CAPTURE(params.weight_decay.value_or(-1));
    const Runs wide = run(params, at::kDouble), narrow = run(params, at::kFloat);
    CHECK(at::allclose(wide.ours, wide.formula, 1e-12, 1e-12));
    CHECK(at::allclose(narrow.ours.to(at::kDouble), narrow.formula, 1e-4, 1e-5));
  }
}

TEST_CASE("optimizer_ops: padding stays zero") {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    const auto optimizer = make_flat_optimizer({.name = name, .momentum = 0.9, .weight_decay = 0.1}, at::zeros({64}));
    at::Tensor weights = at::zeros({64});
    for (int t = 0; t < 3; ++t) optimizer->step(weights, at::zeros({64}), 0.1);
    CHECK(at::equal(weights, at::zeros({64})));
  }
}

TEST_CASE("optimizer_ops: parameters that make no sense are refused") {
  CHECK(problems({{"name", "sgd"}, {"momentum", 0.9}, {"nesterov", true}}) == "");
  CHECK(problems({{"nesterov", true}}) == "optimizer: nesterov needs a momentum above 0\n");
  CHECK(problems({{"betas", {0.9}}}) == "optimizer: betas takes two numbers below 1\n");
  CHECK(problems({{"betas", {0.9, 1}}}) == "optimizer: betas takes two numbers below 1\n");
  CHECK(problems({{"eps", 0}}) != "");
  CHECK(problems({{"lr", 0}}) != "");
}
