// The delays of sixteen airlines: does it learn anything, measured so that a model that learnt nothing fails?
//
// 963 held-out targets (days from 300 on), standardised by each stream's training targets, days 1 to 299: day 0 has no
// day before it to forecast from. Predicting the training mean, which is zero, has a mean squared error of 0.6275 then,
// repeating the last known value one of 0.9023. (With day 0 among the training targets: 0.629 and 0.904.)
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

constexpr double kShareOfMean = 0.95;
constexpr double kMean = 0.62746, kLast = 0.90233;  // worked out from the files by themselves, without lanewise

nlohmann::json evaluation_of(std::vector<std::string> more) {
  const TempDir dir;
  more.insert(more.begin(), {"configs/flights16.json", "--quiet"});
  const Ran ran = run_in(dir, "out", more, {.timeout_s = 250});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  return ran.report.at("evaluation");
}

double mse(const nlohmann::json& evaluation) { return evaluation.at("mse"); }
double bar(const nlohmann::json& evaluation) {
  return kShareOfMean * evaluation.at("baselines").at("mean").get<double>();
}

}  // namespace

TEST_CASE("flights16: three seeds each beat the training mean by 5 % and the last value by far") {
  for (const int seed : {1, 2, 3}) {
    const nlohmann::json evaluation = evaluation_of({"--set", fmt::format("run.seed={}", seed)});
    const double last = evaluation.at("baselines").at("last"), mean = evaluation.at("baselines").at("mean");
    MESSAGE(fmt::format("seed {}: mse {:.4f}, last value {:.4f}, training mean {:.4f}, {} targets", seed,
                        mse(evaluation), last, mean, evaluation.at("n").get<double>()));
    for (const auto& [stream, scores] : evaluation.at("streams").items()) {
      MESSAGE(fmt::format("  {:6} n {:3}  mse {}  last {}  mean {}", stream, scores.at("n").get<double>(),
                          scores.at("mse").dump(), scores.at("baselines").at("last").dump(),
                          scores.at("baselines").at("mean").dump()));
    }
    CHECK(evaluation.at("n") == 963);
    CHECK(std::abs(mean - kMean) < 1e-4);
    CHECK(std::abs(last - kLast) < 1e-4);
    CHECK(mse(evaluation) <= bar(evaluation));
    CHECK(mse(evaluation) <= 0.75 * last);
  }
}

TEST_CASE("flights16: a model whose output is zero misses the bar") {
  // Full weight decay and an update divided by a huge eps: after one step every weight is zero.
  const nlohmann::json evaluation = evaluation_of({"--set", "run.steps=1", "--set", "opt.name=adamw", "--set",
                                                   "opt.lr=1", "--set", "opt.weight_decay=1", "--set", "opt.eps=1e30"});
  CHECK(mse(evaluation) == doctest::Approx(evaluation.at("baselines").at("mean").get<double>()).epsilon(1e-6));
  CHECK(mse(evaluation) > bar(evaluation));
}

TEST_CASE("flights16: the mean of eight untrained seeds misses the bar") {
  double sum = 0, limit = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    const nlohmann::json evaluation =
        evaluation_of({"--set", fmt::format("run.seed={}", seed), "--set", "run.steps=1", "--set", "opt.lr=1e-12"});
    MESSAGE(fmt::format("untrained, seed {}: mse {:.4f}", seed, mse(evaluation)));
    sum += mse(evaluation);
    limit = bar(evaluation);
  }
  CHECK(sum / 8 > limit);
}

}  // namespace lanewise
