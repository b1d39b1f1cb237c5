// Fused lanes, from outside: the same training as lane by lane, told lane by lane, and what is fused and why not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

// Ten sines in five lanes of two; `model`, `set` and `run` are the insides of objects.
std::string pipeline(const std::string& model, const std::string& run, const std::string& set = "") {
  return fmt::format(R"({{
    "name": "five",
    "models": {{ "net": {{ {} }} }},
    "nodes": [
      {{ "id": "gen", "repeat": 10, "type": "sine", "each": {{ "period": 7 }}, "params": {{ "features": 4, "noise": 0.1, "samples": 400 }} }},
      {{ "id": "bad", "repeat": 10, "type": "fault", "in": [ {{ "from": "gen", "take": 1 }} ] }},
      {{ "id": "pair", "repeat": 5, "type": "pair", "in": [ {{ "from": "bad", "take": 2 }} ] }},
      {{ "id": "lane", "repeat": 5, "type": "compute", "in": [ {{ "from": "pair", "take": 1 }}, {{ "from": "opt", "initial": 1 }} ],
         "device": "cpu:*", "params": {{ "model": "net" }} }},
      {{ "id": "seen", "type": "predictions", "in": [ {{ "from": "lane.prediction" }} ] }},
      {{ "id": "reduce", "type": "allreduce", "in": [ {{ "from": "lane" }} ] }},
      {{ "id": "opt", "type": "optimizer", "in": [ {{ "from": "reduce" }} ], "params": {{ "name": "adamw", "lr": 0.003, "eps": 1e-6 }} }} ],
    "set": {{ {} }},
    "run": {{ "seed": 3, "threads": 2, {} }} }})",
                     model, set, run);
}

struct Trained {
  std::vector<nlohmann::json> steps, evaluations;
  std::vector<double> predictions;  // of all rows, with what else stands in their lines
  nlohmann::json report;
  std::string error;
};

Trained train(const TempDir& dir, const std::string& file, const std::string& fuse, int exit = 0,
              const Surroundings& around = {}) {
  static int runs = 0;
  const std::string name = fmt::format("run{}", ++runs);
  const Ran ran = run_in(dir, name, {file, "--quiet", "--set", "run.fuse=" + fuse}, around);
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == exit);
  Trained trained{.steps = {}, .evaluations = {}, .predictions = {}, .report = ran.report, .error = ran.finished.err};
  const auto read = [&](const std::string& part, std::vector<nlohmann::json>& into) {
    if (!std::filesystem::exists(dir.path(name) + part)) return;
    for (const std::string& line : lines_of(read_text(dir.path(name) + part)))
      into.push_back(nlohmann::json::parse(line));
  };
  read("/metrics.jsonl", trained.steps);
  read("/evaluations.jsonl", trained.evaluations);
  if (std::filesystem::exists(dir.path(name) + "/predictions.csv")) {
    std::vector<std::string> lines = lines_of(read_text(dir.path(name) + "/predictions.csv"));
    std::ranges::sort(lines);  // of one round they come batch by batch, and no two are of one sample
    for (const std::string& line : lines) {
      for (std::size_t begin = 0; begin < line.size();) {
        const std::size_t end = std::min(line.find(',', begin), line.size());
        const std::string cell = line.substr(begin, end - begin);
        if (!cell.empty() && cell.find_first_not_of("0123456789.e+-") == std::string::npos)
          trained.predictions.push_back(std::stod(cell));
        begin = end + 1;
      }
    }
  }
  return trained;
}

// The largest difference of numbers that stand at the same places, relative to them or to `least`; infinite where one
// has what the other lacks.
double apart(const nlohmann::json& a, const nlohmann::json& b, double least = 1e-3) {
  if (a.is_number() && b.is_number()) {
    const double x = a, y = b;
    return std::abs(x - y) / std::max(std::abs(x), least);
  }
  if (a.is_structured() && a.type() == b.type() && a.size() == b.size()) {
    double most = 0;
    for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) most = std::max(most, apart(*i, *j, least));
    return most;
  }
  return a == b ? 0 : INFINITY;
}

// `tolerance`: of the loss, and of all but the losses of single streams and the gradient's norm, which are given
// `streams` times as much.
void check_alike(const Trained& a, const Trained& b, double tolerance, double streams = 1) {
  REQUIRE(a.steps.size() == b.steps.size());
  CHECK(apart(a.steps, b.steps) <= streams * tolerance);
  for (std::size_t i = 0; i < a.steps.size(); ++i)
    CHECK(apart(a.steps[i].at("loss"), b.steps[i].at("loss")) <= tolerance);
  CHECK(apart(a.evaluations, b.evaluations) <= tolerance);
  CHECK(apart(a.predictions, b.predictions, 0.1) <= tolerance);
  CHECK(a.report.at("reason") == b.report.at("reason"));
  for (const auto& [stream, account] : a.report.at("samples").items()) {
    for (const char* const part : {"trained", "fillers"})
      CHECK(b.report.at("samples").at(stream).at(part) == account.at(part));
  }
}

constexpr const char* kUnequal = R"("gen0.samples": 37, "gen5.samples": 61)";

}  // namespace

TEST_CASE("fuse: fused lanes train what lanes do one by one, told for every lane and stream") {
  struct Case {
    std::string model, run, set;
  };
  const std::vector<Case> cases = {
      {R"("type": "mlp", "hidden": [16, 16], "activation": "silu")", R"("steps": 200)", ""},
      {R"("type": "mlp", "hidden": [16], "activation": "tanh", "dropout": 0.3)", R"("steps": 200, "accumulate": 2)",
       ""},
      {R"("type": "gru", "hidden": 8)", R"("steps": 100, "state": "carry", "tbptt": 3, "burn_in": 2)", ""},
      {R"("type": "lstm", "hidden": 8, "layers": 2, "dropout": 0.2)", R"("passes": 2, "state": "carry")", kUnequal},
      {R"("type": "linear")", R"("steps": 80, "on_end": "mask")", kUnequal},
      {R"("type": "linear")", R"("steps": 300, "on_end": "first")", kUnequal}};
  for (const Case& one : cases) {
    for (const auto& [dtype, tolerance, streams] : {std::tuple{"float64", 1e-10, 1.0}, {"float32", 1e-5, 3.0}}) {
      const TempDir dir;
      const std::string run = fmt::format(R"({}, "dtype": "{}")", one.run, dtype);
      const std::string text = pipeline(one.model, run, one.set);
      CAPTURE(text);
      const std::string file = dir.write("p.json", text);
      const Trained apart = train(dir, file, "off");
      CHECK(apart.steps.front().at("lanes").size() == 5);
      CHECK(apart.predictions.size() > 100);
      for (const char* const groups : {"1", "2", "3"}) check_alike(apart, train(dir, file, groups), tolerance, streams);
    }
  }
}

TEST_CASE("fuse: real records with gaps, missing values and evaluations come out alike") {
  const TempDir dir;
  const auto flights = [&](const std::string& fuse) {
    std::string text = read_text("configs/flights16.json");
    text = replaced(text, "\"data/", fmt::format("\"{}/configs/data/", std::filesystem::current_path().string()));
    text = replaced(text, R"("passes": 5)", R"("passes": 1, "dtype": "float64")");
    return train(dir, dir.write("f.json", text), fuse);
  };
  const Trained apart = flights("off");
  CHECK(apart.evaluations.size() == 1);
  for (const char* const groups : {"1", "2", "5"}) check_alike(apart, flights(groups), 1e-9);
}

TEST_CASE("fuse: a value that is not finite is laid to the lane and stream that it came from") {
  const TempDir dir;
  const std::string fault = R"("bad5.at": 30, "bad5.kind": "nan")";
  for (const char* const model : {R"("type": "mlp", "hidden": [8])", R"("type": "gru", "hidden": 8)"}) {
    const std::string file = dir.write("p.json", pipeline(model, R"("steps": 60, "state": "carry")", fault));
    const Trained apart = train(dir, file, "off", 10), fused = train(dir, file, "2", 10);
    CHECK(apart.error.find("lane2 (cpu:2): loss nan; stream gen4, run 0, seq 30, loss ") != std::string::npos);
    CHECK(fused.error.find("lane2 (cpu:2): loss nan; stream gen4, run 0, seq 30, loss ") != std::string::npos);
    CHECK(fused.error.find("stream gen5, run 0, seq 30, loss nan") != std::string::npos);
    CHECK(fused.error.find("stream gen6") == std::string::npos);
    const std::string skips = dir.write(
        "s.json", pipeline(model, R"("steps": 60, "state": "carry", "non_finite": "skip", "dtype": "float64")", fault));
    check_alike(train(dir, skips, "off"), train(dir, skips, "2"), 1e-10);
  }
}

TEST_CASE("fuse: a run goes on fused or not, and its model evaluates and predicts") {
  const TempDir dir;
  const std::string file = dir.write(
      "p.json", pipeline(R"("type": "gru", "hidden": 8)", R"("steps": 100, "state": "carry", "dtype": "float64")"));
  const Ran whole = run_in(dir, "whole", {file, "--quiet", "--set", "run.fuse=off"});
  REQUIRE(whole.finished.exit == 0);
  for (const auto& [first, then] : {std::pair{"off", "2"}, {"2", "off"}, {"2", "1"}}) {
    const std::string name = fmt::format("{}-{}", first, then);
    CAPTURE(name);
    REQUIRE(run_in(dir, name, {file, "--quiet", "--set", "run.steps=50", "--set", std::string("run.fuse=") + first})
                .finished.exit == 0);
    const Finished resumed = lanewise_command(
        {"resume", dir.path(name), "--quiet", "--set", "run.steps=100", "--set", std::string("run.fuse=") + then});
    INFO(resumed.err);
    REQUIRE(resumed.exit == 0);
    const auto a = lines_of(read_text(dir.path("whole/metrics.jsonl"))),
               b = lines_of(read_text(dir.path(name) + "/metrics.jsonl"));
    REQUIRE(a.size() == b.size());
    CHECK(apart(nlohmann::json::parse(a.back()), nlohmann::json::parse(b.back())) <= 1e-10);
  }
  const Finished predicted = lanewise_command({"predict", dir.path("2-off"), "--set", "gen.samples=5"});
  INFO(predicted.err);
  CHECK(predicted.exit == 0);
  CHECK(lines_of(predicted.out).size() == 51);
}

TEST_CASE("fuse: check and graph say what is fused, and why not") {
  const TempDir dir;
  const std::string mlp = R"("type": "mlp", "hidden": [8])", steps = R"("steps": 5)";
  const std::string own =
      "they are batches of their own, so many were asked for, or no neighbour is alike and shares their weights";
  const auto fusion = [&](const std::string& model, const std::string& run, const std::string& set) {
    const std::string file = dir.write("p.json", pipeline(model, run));
    std::vector<std::string> arguments = {"graph", file};
    if (!set.empty()) arguments.insert(arguments.end(), {"--set", set});
    const std::string drawn = lanewise_command(arguments).out;
    arguments[0] = "check";
    const Finished checked = lanewise_command(arguments);
    INFO(checked.err);
    REQUIRE(checked.exit == 0);
    for (const std::string& line : lines_of(drawn)) {
      if (line.find("fused") == std::string::npos) continue;
      CHECK(checked.out.find("  " + line + "\n") != std::string::npos);
      return line;
    }
    return std::string("nothing");
  };
  CHECK(fusion(mlp, steps, "run.fuse=2") == "fused: lane[0..1] and lane[2..4]");
  CHECK(fusion(mlp, steps, "run.fuse=5") == "lanes are not fused: " + own);
  CHECK(fusion(mlp, R"("steps": 5, "reduction": "deterministic")", "") == "fused: lane[0..1] and lane[2..4]");
  CHECK(fusion(mlp, steps, "") ==
        "lanes are not fused: run.fuse auto leaves them apart under the reduction reference; run.fuse 2 makes two "
        "batches of them");
  CHECK(fusion(mlp, steps, "run.fuse=off") == "lanes are not fused: run.fuse is off");
  CHECK(fusion(mlp, R"("steps": 5, "weights": "per_device")", "run.fuse=2") == "lanes are not fused: " + own);
  CHECK(fusion(mlp + R"(, "norm": "batch")", R"("steps": 5, "buffers": "average")", "run.fuse=2") ==
        "lanes are not fused: lane0: the model \"net\" keeps statistics of its batches");
  CHECK(fusion(mlp, steps, "lane4.delta=2") ==
        "lanes are not fused: run.fuse auto leaves them apart under the reduction reference; run.fuse 2 makes two "
        "batches of them");
  const std::string file = dir.write("p.json", pipeline(mlp, steps));
  const Finished uneven = lanewise_command({"graph", file, "--set", "run.fuse=1", "--set", "lane4.loss=huber"});
  CHECK(uneven.out.find("\nfused: lane[0..3]; the others are not: " + own + "\n") != std::string::npos);
  const Finished shapes = lanewise_command(
      {"graph", file, "--set", "run.fuse=1", "--set", "gen[8..9].features=3", "--set", "~lane4.device"});
  CHECK(shapes.exit == 3);  // one model takes samples of one shape
  const Finished wrong = lanewise_command({"check", file, "--set", "run.fuse=some"});
  CHECK(wrong.exit == 3);
  CHECK(wrong.err.find("run: \"fuse\" must be off, auto or a number of batches, not \"some\"") != std::string::npos);
}

TEST_CASE("fuse: lanes of one emulated GPU are one batch") {
  const TempDir dir;
  const std::string text =
      pipeline(R"("type": "gru", "hidden": 8)", R"("steps": 60, "state": "carry", "dtype": "float64")");
  const std::string file = dir.write("p.json", replaced(text, "cpu:*", "cuda:*"));
  const Surroundings one_gpu{.environment = {"LANEWISE_EMULATED_GPUS=1"}};
  const Trained apart = train(dir, file, "off", 0, one_gpu), fused = train(dir, file, "auto", 0, one_gpu);
  check_alike(apart, fused, 1e-10);
  CHECK(apart.report.at("nodes").size() > fused.report.at("nodes").size());
}

}  // namespace lanewise
