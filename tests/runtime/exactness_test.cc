// Eight lanes of two rows against one plain batch of sixteen: replicas, communicator and optimizer without the graph.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <numeric>

#include "runtime/communicator.h"
#include "runtime/loss.h"
#include "runtime/optimizer_ops.h"
#include "runtime/random.h"
#include "runtime/replica.h"
#include "runtime/values.h"
#include "tests/check.h"
#include "tests/runtime/models.h"
#include "tests/runtime/plain_loop.h"

using namespace lanewise;
using nlohmann::json;

namespace {

constexpr int kLanes = 8, kStreams = 16;
constexpr std::uint64_t kSeed = 5;

using Samples = std::vector<std::vector<PlainLoop::Row>>;

struct Case {
  std::string model;
  json params;
  Shape input;
  std::string optimizer;
  at::ScalarType dtype = at::kDouble;
  bool unequal = false;  // row weights 0, 0.5 and 1 instead of 1
  bool per_device = false;
  int steps = 200;

  std::string text() const {
    return fmt::format("{} {} {} {}{}", model, params.value("activation", ""), optimizer,
                       dtype == at::kDouble ? "float64" : "float32", unequal ? ", unequal weights" : "");
  }
  double tolerance() const { return dtype == at::kDouble ? 1e-10 : 1e-5; }
};

// Every stream is a first-order process; its target is a wave of its mean. Every row weighs 1, or 0, 0.5 or 1 by
// chance.
Samples make_samples(const Case& c) {
  Samples samples(c.steps);
  for (int stream = 0; stream < kStreams; ++stream) {
    Random random(kSeed, "test", fmt::format("stream{}", stream));
    std::vector<double> x(element_count(c.input));
    for (double& value : x) value = random.normal();
    for (auto& step : samples) {
      double mean = 0;
      for (double& value : x) {
        value = 0.9 * value + 0.44 * random.normal();
        mean += value / static_cast<double>(x.size());
      }
      const double weight = c.unequal ? 0.5 * static_cast<double>(random.bits() % 3) : 1;
      step.push_back({at::tensor(x, c.dtype).view(c.input), at::tensor({std::sin(3 * mean)}, c.dtype), weight});
    }
  }
  return samples;
}

// How a lane's loss gets back to the weights: right, or one of the usual mistakes.
enum class Backward { kRight, kDetached, kMeanOfMeans };

OptimizerParams optimizer_params(const Case& c) {
  OptimizerParams params;
  params.name = c.optimizer;
  params.momentum = c.optimizer == "sgd" ? 0.9 : 0;
  params.eps = 1e-6;
  params.weight_decay = 0.01;
  return params;
}

constexpr double kRate = 1e-2;

TrainedRun weights_of(const Replicas& replicas) {
  TrainedRun run;
  for (std::size_t i = 0; i < replicas.specs().size(); ++i) {
    run.weights[replicas.specs()[i].name] = replicas.parameter(static_cast<int>(i)).clone();
  }
  return run;
}

// A lane's forward, loss and backward: its bucket then holds Σ w·∇r and its rows of the tail.
void run_lane(Replicas& replicas, int lane, const std::vector<PlainLoop::Row>& rows, Backward backward) {
  const PlainLoop::Row &a = rows[2 * lane], &b = rows[2 * lane + 1];
  at::Tensor& bucket = replicas.bucket(lane);
  bucket.zero_();
  const at::Tensor x = at::stack({a.x, b.x}).unsqueeze(0), y = at::stack({a.y, b.y}).unsqueeze(0);
  at::Tensor losses = loss_type("mse").rows(predict(replicas.model(lane), x), y, 1);
  if (backward == Backward::kDetached) losses = losses.detach().requires_grad_();
  at::Tensor weights = at::tensor({a.weight, b.weight}, y.options()).view({1, 2});
  const double count = a.weight + b.weight;
  // A mean of means: every lane that has anything counts like every other.
  if (backward == Backward::kMeanOfMeans && count > 0) weights = weights / count;
  (losses * weights).sum().backward();
  // (w·r, w) of the lane's two streams lie together in the tail.
  bucket.narrow(0, replicas.layout().loss_at(2 * lane), 4)
      .copy_(at::stack({weights * losses.detach(), weights}, 2).view({4}));
}

TrainedRun run_lanes(const Case& c, const Samples& samples, Backward backward = Backward::kRight) {
  Replicas replicas(
      [&] { return model_type(c.model).make(c.params, c.input, {1}); }, "net",
      {.dtype = c.dtype, .domains = domains(c.per_device, kLanes), .lanes = kLanes, .streams = kStreams, .seed = kSeed});
  const auto communicator = make_local_communicator();
  std::vector<std::unique_ptr<FlatOptimizer>> optimizers;
  for (int d = 0; d < replicas.domain_count(); ++d) {
    optimizers.push_back(make_flat_optimizer(optimizer_params(c), replicas.weights(d)));
  }
  std::vector<double> losses;
  for (const auto& rows : samples) {
    for (int lane = 0; lane < kLanes; ++lane) run_lane(replicas, lane, rows, backward);
    const double n = communicator->reduce(replicas);
    double sum = 0;
    for (int stream = 0; stream < kStreams; ++stream) {
      sum += replicas.reduced(0)[replicas.layout().loss_at(stream)].item<double>();
    }
    losses.push_back(sum / n);
    for (int d = 0; d < replicas.domain_count(); ++d) {
      optimizers[d]->step(replicas.weights(d), replicas.reduced(d).narrow(0, 0, replicas.layout().parameters), kRate);
      replicas.mark_changed(d);
    }
  }
  for (int d = 1; d < replicas.domain_count(); ++d) CHECK(replicas.weights_sha256(d) == replicas.weights_sha256(0));
  TrainedRun run = weights_of(replicas);
  run.losses = losses;
  return run;
}

TrainedRun run_plain(const Case& c, const Samples& samples) {
  const Replicas initial([&] { return model_type(c.model).make(c.params, c.input, {1}); }, "net",
                         {.dtype = c.dtype, .seed = kSeed});
  PlainLoop plain{.model = c.model, .params = c.params, .weights = weights_of(initial).weights};
  const OptimizerParams params = optimizer_params(c);
  plain.optimizer = c.optimizer;
  plain.lr = kRate;
  plain.momentum = params.momentum;
  plain.eps = params.eps;
  plain.weight_decay = *params.weight_decay;
  return plain.run(samples);
}

const json kTanh = {{"hidden", {32, 32}}, {"activation", "tanh"}},
           kRelu = {{"hidden", {32, 32}}, {"activation", "relu"}}, kGru = {{"hidden", 16}, {"layers", 1}};

std::vector<Case> cases(at::ScalarType dtype) {
  return {{"mlp", kTanh, {8}, "sgd", dtype},   {"mlp", kRelu, {8}, "sgd", dtype},
          {"gru", kGru, {8, 4}, "sgd", dtype}, {"mlp", kTanh, {8}, "adamw", dtype},
          {"mlp", kRelu, {8}, "adamw", dtype}, {"gru", kGru, {8, 4}, "adamw", dtype}};
}

// Also demands that something was learnt, so that equal runs are runs of a training.
void check_equal(const Case& c) {
  const Samples samples = make_samples(c);
  const TrainedRun plain = run_plain(c, samples);
  const Verdict verdict = compare_runs(run_lanes(c, samples), plain, c.tolerance());
  INFO(c.text() << ": " << verdict.text());
  CHECK(verdict.word == "equal");
  const auto mean = [&](int first) {
    return std::accumulate(&plain.losses[first], &plain.losses[first] + 20, 0.0) / 20;
  };
  CHECK(mean(c.steps - 20) < 0.8 * mean(0));
}

}  // namespace

TEST_CASE("exactness: in float64 eight lanes train like one plain batch of sixteen, to 1e-10") {
  at::set_num_threads(1);
  for (const Case& c : cases(at::kDouble)) check_equal(c);
}

TEST_CASE("exactness: in float32 eight lanes train like one plain batch of sixteen, to 1e-5") {
  at::set_num_threads(1);
  for (const Case& c : cases(at::kFloat)) check_equal(c);
}

TEST_CASE("exactness: rows that weigh 0, 0.5 and 1 train like the plain weighted batch") {
  at::set_num_threads(1);
  check_equal({"mlp", kTanh, {8}, "adamw", at::kDouble, /*unequal=*/true});
  check_equal({"gru", kGru, {8, 4}, "sgd", at::kDouble, /*unequal=*/true});
  check_equal({"mlp", kRelu, {8}, "sgd", at::kFloat, /*unequal=*/true});
}

TEST_CASE("exactness: shared weights and one copy a device give the same bits") {
  at::set_num_threads(1);
  for (Case c : {Case{"mlp", kRelu, {8}, "adamw", at::kFloat, /*unequal=*/true},
                 Case{"gru", kGru, {8, 4}, "sgd", at::kFloat, /*unequal=*/true}}) {
    c.steps = 20;
    const Samples samples = make_samples(c);
    const TrainedRun shared = run_lanes(c, samples), again = run_lanes(c, samples);
    c.per_device = true;
    const TrainedRun own = run_lanes(c, samples);
    INFO(c.text());
    CHECK(shared.losses == own.losses);
    CHECK(at::equal(shared.flat(), own.flat()));
    CHECK(shared.losses == again.losses);
    CHECK(at::equal(shared.flat(), again.flat()));
  }
}

TEST_CASE("exactness: a loss cut off from the model, and a mean of means, are found to be different") {
  at::set_num_threads(1);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const Case c{"mlp", kTanh, {8}, "adamw", dtype, /*unequal=*/true};
    const Samples samples = make_samples(c);
    const TrainedRun plain = run_plain(c, samples);
    for (const Backward mistake : {Backward::kDetached, Backward::kMeanOfMeans}) {
      const Verdict verdict = compare_runs(run_lanes(c, samples, mistake), plain, c.tolerance());
      INFO(verdict.text());
      CHECK(verdict.word == "different");
      CHECK(verdict.weights > 100 * c.tolerance());
    }
  }
}

TEST_CASE("exactness: the comparison takes neither NaN nor runs of another length for equal") {
  const TrainedRun run{{1, 2}, {{"w", at::ones({3})}}};
  CHECK(compare_runs(run, run, 0).text() == "equal: weights 0.00e+00, loss 0.00e+00");
  CHECK(compare_runs({{1, NAN}, run.weights}, run, 1).word == "different");
  CHECK(compare_runs({{NAN, 2}, run.weights}, run, 1).word == "different");
  CHECK(compare_runs({{1, 2}, {{"w", at::ones({3}) * NAN}}}, run, 1).word == "different");
  CHECK(compare_runs({{1}, run.weights}, run, 1).word == "different");
  CHECK(compare_runs({{1, 2}, {{"w", at::ones({4})}}}, run, 1).word == "different");
  CHECK(compare_runs({{1, 2.1}, run.weights}, run, 0.06).text() == "equal: weights 0.00e+00, loss 5.00e-02");
}
