// What a loss or gradient that is not finite does to a run: nothing at all but what run.non_finite says.
#include <cmath>

#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

Topology scripted(const std::string& optimizer, const std::string& run) {
  Topology t;
  t.source = R"("type": "script")";
  t.model = R"("type": "gru", "hidden": 4)";
  t.optimizer = optimizer;
  t.run = run + R"(, "dtype": "float64", "state": "carry", "steps": 100)";
  return t;
}

const std::string kSgd = R"("name": "sgd", "lr": 0.5, "momentum": 0.9)", kAdam = R"("name": "adamw", "lr": 0.1)";

}  // namespace

TEST_CASE("non_finite skip: a bad round leaves no trace in weights, optimizer, recurrent state and counters") {
  for (const std::string& optimizer : {kSgd, kAdam}) {
    for (const char* const weights : {"shared", "per_device"}) {
      CAPTURE(optimizer);
      const std::string run = fmt::format(R"("non_finite": "skip", "weights": "{}")", weights);
      write_scripts({0, 1, 2, 3, 4, 5}, 2);
      const Ran bad = train(scripted(optimizer, run).text());
      write_scripts({0, 1, 3, 4, 5}, -1);
      const Ran good = train(scripted(optimizer, run).text());
      REQUIRE_MESSAGE(bad.exit() == 0, bad.reason());
      CHECK(bad.report["steps"] == 5);
      CHECK(bad.metrics == good.metrics);
      CHECK(bad.report["weights_sha256"] == good.report["weights_sha256"]);
      CHECK(bad.report["skipped"]["steps"] == 1);
      const std::string what = bad.report["skipped"]["told"][0];
      INFO(what);
      CHECK(what.starts_with("step 3: the loss or the gradient is not finite\n  lane5 (cpu:5): loss nan"));
      CHECK(what.find("stream gen11, run 0, seq 2") != std::string::npos);
      CHECK(bad.report["samples"]["gen11"]["trained"] == 5);
      CHECK(bad.report["samples"]["gen11"]["left"] == 1);
    }
  }
}

TEST_CASE("non_finite skip: with accumulate the whole step is dropped, and the next begins with the next round") {
  const std::string run = R"("non_finite": "skip", "accumulate": 2)";
  write_scripts({0, 1, 2, 3, 4, 5, 6, 7}, 3);  // rounds 2 and 3 are the second step
  const Ran bad = train(scripted(kAdam, run).text());
  write_scripts({0, 1, 4, 5, 6, 7}, -1);
  const Ran good = train(scripted(kAdam, run).text());
  CHECK(bad.report["steps"] == 3);
  CHECK(bad.metrics == good.metrics);
  CHECK(bad.report["weights_sha256"] == good.report["weights_sha256"]);
}

TEST_CASE("non_finite skip: a hundred bad steps in a row end the run, which would skip for ever") {
  Topology t;
  t.optimizer = R"("name": "sgd", "lr": 1e30)";  // every loss after the first step overflows
  t.run = R"("non_finite": "skip", "steps": 1000)";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 10);
  CHECK(ran.report["skipped"]["steps"] == 99);
  CHECK(ran.reason().ends_with("100 steps in a row were skipped; look at these samples, or lower the optimizer's lr"));
}

TEST_CASE("non_finite stop: the run ends and names lane, streams and samples; nothing of the round is applied") {
  write_scripts({0, 1, 2, 3}, 2);
  const Ran ran = train(scripted(kAdam, R"("non_finite": "stop")").text());
  CHECK(ran.exit() == 10);
  CHECK(ran.report["steps"] == 2);
  CHECK(ran.reason().find("step 3: the loss or the gradient is not finite") != std::string::npos);
  CHECK(ran.reason().find("stream gen11, run 0, seq 2") != std::string::npos);
  write_scripts({0, 1}, -1);
  CHECK(train(scripted(kAdam, R"("non_finite": "stop")").text()).report["weights_sha256"] ==
        ran.report["weights_sha256"]);
}

TEST_CASE("non_finite allow: the run goes on, and its metrics stay valid JSON with null") {
  write_scripts({0, 1, 2, 3}, 2);
  const Ran ran = train(scripted(kAdam, R"("non_finite": "allow")").text());
  CHECK(ran.exit() == 0);
  CHECK(ran.report["steps"] == 4);
  const std::vector<double> losses = ran.losses();
  CHECK(std::isfinite(losses[1]));
  CHECK(std::isnan(losses[2]));
  CHECK(std::isnan(losses[3]));
}

TEST_CASE("accumulate: two rounds of a step are one batch of both, as tbptt makes it") {
  for (const char* const dtype : {"float64", "float32"}) {
    CAPTURE(dtype);
    Topology t;
    t.model = R"("type": "mlp", "hidden": [8], "activation": "tanh")";
    t.optimizer = R"("name": "adamw", "lr": 0.01, "eps": 1e-6)";
    t.run = fmt::format(R"("steps": 50, "seed": 7, "dtype": "{}")", dtype);
    const Ran two = train(t.text(), {"run.accumulate=2"}), window = train(t.text(), {"run.tbptt=2"});
    REQUIRE(two.exit() == 0);
    REQUIRE(window.exit() == 0);
    const double bound = std::string(dtype) == "float64" ? 1e-10 : 1e-5;
    for (const auto& [name, weights] : two.weights) {
      CHECK((weights - window.weights.at(name)).norm().item<double>() <= bound * weights.norm().item<double>());
    }
    const std::vector<double> a = two.losses(), b = window.losses();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= bound * std::max(std::abs(b[i]), 1e-3));
  }
}

TEST_CASE("clip: a gradient above max_norm steps as far as one of that norm, and metrics tell its norm before") {
  Topology t;
  t.optimizer = R"("name": "sgd", "lr": 1.0)";
  t.run = R"("steps": 1, "seed": 7, "dtype": "float64")";
  const auto moved = [&](const Ran& ran) {
    const Ran still = train(t.text(), {"opt.lr=1e-300"});
    double squares = 0;
    for (const auto& [name, w] : ran.weights) squares += (w - still.weights.at(name)).square().sum().item<double>();
    return std::sqrt(squares);
  };
  const Ran free = train(t.text());
  const double norm = nlohmann::json::parse(free.metrics)["grad_norm"];
  CHECK(moved(free) == doctest::Approx(norm));
  std::string text = t.text();
  const std::string optimizer = R"("type": "optimizer", "in": [ { "from": "reduce" } ])";
  text.replace(text.find(optimizer), optimizer.size(), R"("type": "optimizer", "in": [ { "from": "clip" } ])");
  text.insert(text.find(R"({ "id": "opt")"),
              R"({ "id": "clip", "type": "clip", "in": [ { "from": "reduce" } ], "params": { "max_norm": 0.01 } }, )");
  for (const char* const weights : {"shared", "per_device"}) {
    const Ran clipped = train(text, {fmt::format("run.weights={}", weights)});
    REQUIRE_MESSAGE(clipped.exit() == 0, clipped.reason());
    CHECK(nlohmann::json::parse(clipped.metrics)["grad_norm"] == doctest::Approx(norm));
    CHECK(moved(clipped) == doctest::Approx(0.01 * norm / (norm + 1e-6)));
  }
}
