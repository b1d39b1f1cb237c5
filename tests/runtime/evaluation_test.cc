// Evaluations: a second plan between two steps, which changes nothing of the training and is the same every time.
#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

Topology evaluated() {
  Topology t;
  t.chain =
      R"( { "id": "norm", "repeat": 16, "type": "normalize", "in": [ { "from": "gen", "take": 1 } ], "params": { "fit_samples": 50 } },)";
  t.last = "norm";
  t.run = R"("steps": 12, "seed": 7)";
  t.top = R"(, "evaluate": { "every": 4, "steps": 10 })";
  return t;
}

std::vector<nlohmann::json> lines(const std::string& text) {
  std::vector<nlohmann::json> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    all.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

}  // namespace

TEST_CASE("an evaluation: changes no training state, whenever it takes place") {
  const Ran often = train(evaluated().text(), {"evaluate.every=1"});
  REQUIRE_MESSAGE(often.exit() == 0, often.reason());
  const Ran never = train(evaluated().text(), {"evaluate.every=1000"});
  CHECK(often.metrics == never.metrics);
  CHECK(often.report["weights_sha256"] == never.report["weights_sha256"]);
  CHECK(often.report["evaluation"] == never.report["evaluation"]);
  CHECK(lines(often.files.at("evaluations.jsonl")).size() == 12);
  CHECK(lines(never.files.at("evaluations.jsonl")).size() == 1);
}

TEST_CASE("an evaluation: sees the same numbers every time, and never the training ones") {
  // Weights that do not change are evaluated alike after every step.
  const Ran ran = train(evaluated().text(), {"opt.lr=1e-300"});
  const std::vector<nlohmann::json> all = lines(ran.files.at("evaluations.jsonl"));
  REQUIRE(all.size() == 3);
  CHECK(all[0]["step"] == 4);
  CHECK(all[0]["loss"] == all[1]["loss"]);
  CHECK(all[0]["streams"] == all[2]["streams"]);
  CHECK(all[0]["n"] == 160);
  // One batch of sixteen training samples with the same weights has another loss than the same count of evaluation
  // ones.
  CHECK(train(evaluated().text(), {"opt.lr=1e-300", "evaluate.steps=1"}).report["evaluation"]["loss"] !=
        ran.losses().front());
}

TEST_CASE("an evaluation: baselines are over exactly the evaluated targets") {
  // y of `constant` with a ramp: the last value misses by the ramp; the training mean is what was trained on.
  Topology t;
  t.streams = 2;
  t.lanes = 1;
  t.source = R"("type": "constant", "params": { "features": 2, "ramp": 0.5, "samples": 10 })";
  t.run = R"("steps": 5, "dtype": "float64")";
  t.optimizer = R"("name": "sgd", "lr": 1e-6)";
  t.top = R"(, "evaluate": {})";
  const Ran ran = train(t.text());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  const auto& e = ran.report["evaluation"];
  CHECK(e["n"] == 20);
  CHECK(e["mse"] == e["loss"]);
  CHECK(e["raw"]["mse"] == e["mse"]);
  // y is 0, 0.5, 1, …, and the training saw the first five. The first target has no value before it: the mean stands
  // in.
  const double trained_mean = 1;
  double last = (trained_mean - 0) * (trained_mean - 0), mean = 0;
  for (int k = 1; k < 10; ++k) last += 0.5 * 0.5;
  for (int k = 0; k < 10; ++k) mean += (0.5 * k - trained_mean) * (0.5 * k - trained_mean);
  CHECK(e["baselines"]["last"].get<double>() == doctest::Approx(last / 10).epsilon(1e-12));
  CHECK(e["baselines"]["mean"].get<double>() == doctest::Approx(mean / 10).epsilon(1e-12));
}

TEST_CASE("an evaluation: streams that end earlier are masked, and each is told by itself") {
  Topology t;
  t.streams = 4;
  t.lanes = 2;
  t.source = R"("type": "ar1", "params": { "features": 3 }, "each": { "samples": [9, 5, 7, 9] })";
  t.run = R"("steps": 3)";
  t.top = R"(, "evaluate": {})";
  const Ran ran = train(t.text());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  const auto& e = ran.report["evaluation"];
  CHECK(e["n"] == 30);
  CHECK(e["streams"]["gen0"]["n"] == 9);
  CHECK(e["streams"]["gen1"]["n"] == 5);
  CHECK(e["streams"]["gen2"]["n"] == 7);
  double sum = 0;
  for (const auto& [stream, s] : e["streams"].items()) sum += s["loss"].get<double>() * s["n"].get<double>();
  CHECK(e["loss"].get<double>() == doctest::Approx(sum / 30).epsilon(1e-12));
}

TEST_CASE("taps: predictions has a row for every target of both phases, in original units") {
  Topology t = evaluated();
  t.extra =
      R"(, { "id": "out", "type": "predictions", "in": [ { "from": "lane.prediction" } ] }, { "id": "show", "type": "console", "in": [ { "from": "opt.step" } ], "params": { "every": 6 } })";
  captured().samples.clear();
  t.chain = R"( { "id": "keep", "repeat": 16, "type": "capture", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "norm", "repeat": 16, "type": "normalize", "in": [ { "from": "keep", "take": 1 } ], "params": { "fit_samples": 50 } },)";
  const Ran ran = train(t.text(), {"evaluate.every=100", "run.dtype=float64"});
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  const std::string& csv = ran.files.at("predictions.csv");
  CHECK(csv.starts_with("phase,step,stream,run,seq,time,weight,y0,p0\ntrain,0,gen0,0,0,,1,"));
  CHECK(std::ranges::count(csv, '\n') == 1 + 12 * 16 + 10 * 16);
  const std::size_t row = csv.find("train,3,gen5,0,3,,1,");
  REQUIRE(row != std::string::npos);
  const std::string y = csv.substr(row + 20, csv.find(',', row + 20) - row - 20);
  // The captured samples begin with those that the fit read.
  CHECK(std::stod(y) == doctest::Approx(captured().samples.at("gen5")[53].y.item<double>()).epsilon(1e-9));
  CHECK(std::ranges::count_if(ran.said, [](const std::string& line) { return line.starts_with("step 6: loss "); }) ==
        1);
}

TEST_CASE("taps: a file name that is none, or is taken, is refused before the run") {
  Topology t;
  t.extra =
      R"(, { "id": "a", "type": "metrics", "in": [ { "from": "opt.step" } ], "params": { "file": "x.jsonl" } }, { "id": "b", "type": "metrics", "in": [ { "from": "opt.step" } ], "params": { "file": "x.jsonl" } })";
  CHECK(train(t.text()).reason() == "a and b would both write to \"x.jsonl\": give one of them another file");
  CHECK(train(t.text(), {"a.file=../x"}).exit() == 3);
  CHECK(train(t.text(), {"a.file=metrics.jsonl"}).reason() ==
        "a cannot write to \"metrics.jsonl\": give a plain file name that the run does not use itself");
}
