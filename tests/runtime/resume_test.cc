// A run that was stopped and resumed is the run that was never stopped, to the last byte.
#include <atomic>

#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

// Everything that has a state: normalisation, windows, noise, dropout, momentum, schedule, recurrent state, a restart.
Topology everything(const std::string& run) {
  Topology t;
  t.streams = 8, t.lanes = 4;
  t.source = R"("type": "ar1", "params": { "features": 3 }, "each": { "samples": [40,41,42,43,30,31,32,33] })";
  t.chain = R"(
    { "id": "norm", "repeat": 8, "type": "normalize", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "win", "repeat": 8, "type": "window", "in": [ { "from": "norm", "take": 1 } ], "params": { "length": 4 } },)";
  t.last = "win";
  t.model = R"("type": "lstm", "hidden": 5, "layers": 2, "dropout": 0.3)";
  t.optimizer = R"("name": "adamw", "lr": 0.01, "schedule": "cosine", "warmup_steps": 5, "decay_steps": 60)";
  t.extra = R"(, { "id": "pred", "type": "predictions", "in": [ { "from": "lane.prediction" } ] })";
  t.run = run + R"(, "seed": 3, "checkpoint": { "every": 4, "keep": 2 })";
  t.top = R"(, "evaluate": { "every": 10, "set": { "gen.samples": 20 } })";
  return t;
}

const char* const kRuns[] = {
    R"("passes": 2, "state": "carry")",
    R"("passes": 2, "state": "carry", "tbptt": 2, "accumulate": 2, "burn_in": 2)",
    R"("steps": 500, "on_end": "mask", "weights": "per_device", "verify_every": 3)",
    R"("steps": 60, "on_end": "restart", "state": "carry", "threads": 3, "non_finite": "skip")",
};

// The lines of predictions.csv that belong to the training.
std::string training_lines(const Ran& ran) {
  const std::string& all = ran.files.at("predictions.csv");
  std::string lines;
  for (std::size_t begin = 0, end; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (all.compare(begin, 6, "train,") == 0) lines += all.substr(begin, end + 1 - begin);
  }
  return lines;
}

void check_same(const Ran& whole, const Ran& resumed) {
  for (const char* const file : {"metrics.jsonl", "evaluations.jsonl", "predictions.csv", "weights.safetensors"}) {
    CAPTURE(file);
    CHECK(whole.files.at(file) == resumed.files.at(file));
  }
  for (const char* const key : {"steps", "reason", "loss", "evaluation", "weights_sha256"}) {
    CAPTURE(key);
    CHECK(whole.report[key] == resumed.report[key]);
  }
  for (const auto& [stream, account] : whole.report["samples"].items()) {
    CHECK(account["trained"] == resumed.report["samples"][stream]["trained"]);
  }
}

}  // namespace

TEST_CASE("resume: a run that was stopped several times leaves the files of one that was not") {
  for (const char* const run : kRuns) {
    CAPTURE(run);
    const std::string text = everything(run).text();
    const Ran whole = train(text);
    REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
    const TemporaryFolder folder;
    Ran part;
    for (int stops = 0; stops < 30; ++stops) {
      std::atomic<int> asked = 0;
      const int most = 37 + 11 * stops;
      part = train_in(folder.path(), plans_of(text), /*resume=*/stops > 0, [&] { return ++asked > most ? 2 : 0; });
      if (part.exit() == 0) break;
      REQUIRE_MESSAGE(part.exit() == 11, part.reason());
    }
    REQUIRE_MESSAGE(part.exit() == 0, part.reason());
    check_same(whole, part);
  }
}

TEST_CASE("resume: without a checkpoint a run begins at step 0, with one that is complete it has nothing left to do") {
  const std::string text = everything(kRuns[0]).text();
  const TemporaryFolder folder;
  const Ran stopped = train_in(folder.path(), plans_of(text), false, [] { return 15; });
  CHECK(stopped.exit() == 11);
  CHECK(stopped.reason() == "stopped by SIGTERM before the first step");
  const Ran whole = train_in(folder.path(), plans_of(text), true);
  REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
  check_same(train(text), whole);
  check_same(whole, train_in(folder.path(), plans_of(text), true));
}

TEST_CASE("resume: more steps go on where the run has ended") {
  Topology t = everything(R"("steps": 12, "on_end": "restart", "state": "carry")");
  t.optimizer = R"("name": "sgd", "lr": 0.01, "momentum": 0.9)";
  const TemporaryFolder folder;
  REQUIRE(train_in(folder.path(), plans_of(t.text())).exit() == 0);
  const Ran longer = train_in(folder.path(), plans_of(t.text(), {"run.steps=30"}), true);
  REQUIRE_MESSAGE(longer.exit() == 0, longer.reason());
  const Ran whole = train(t.text(), {"run.steps=30"});
  CHECK(whole.metrics == longer.metrics);
  CHECK(whole.report["weights_sha256"] == longer.report["weights_sha256"]);
}

TEST_CASE("resume: stops one step after another go on alike, wherever they fall between two records of the nodes") {
  Topology t = everything(R"("steps": 40, "on_end": "restart", "state": "carry")");
  const Ran whole = train(t.text());
  REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
  const TemporaryFolder folder;
  for (int steps = 21; steps <= 40; ++steps) {
    CAPTURE(steps);
    const Ran part =
        train_in(folder.path(), plans_of(t.text(), {fmt::format("run.steps={}", steps)}), /*resume=*/steps > 21);
    REQUIRE_MESSAGE(part.exit() == 0, part.reason());
    if (steps == 40) {
      CHECK(whole.metrics == part.metrics);
      CHECK(training_lines(whole) == training_lines(part));  // each part also evaluated at its own end
      CHECK(whole.report["weights_sha256"] == part.report["weights_sha256"]);
    }
  }
}

TEST_CASE("resume: a data file that was changed is named, and nothing is touched") {
  const TemporaryFolder folder;
  std::string csv = "x,y\n";
  for (int i = 0; i < 30; ++i) csv += fmt::format("{},{}\n", i, 2 * i);
  write_text(folder.path() + "/a.csv", csv);
  Topology t;
  t.streams = 2, t.lanes = 1;
  t.source = fmt::format(R"("type": "csv", "params": {{ "path": "{}/a.csv", "features": ["x"], "target": ["y"] }})",
                         folder.path());
  t.run = R"("steps": 9)";
  t.optimizer = R"("name": "adamw", "lr": 1e-4)";
  const std::string run = folder.path() + "/run";
  REQUIRE(train_in(run, plans_of(t.text())).exit() == 0);
  const std::string metrics = read_text(run + "/metrics.jsonl");
  write_text(folder.path() + "/a.csv", csv + "1,2\n");
  const Ran ran = train_in(run, plans_of(t.text(), {"run.steps=12"}), true);
  CHECK(ran.exit() == 6);
  CHECK(
      ran.reason() ==
      fmt::format(
          "gen0 reads {}/a.csv, which was changed since the checkpoint was taken; put the old one back, or train anew",
          folder.path()));
  CHECK(read_text(run + "/metrics.jsonl") == metrics);
}

TEST_CASE("resume: a checkpoint of another model is refused, and the tensor named") {
  Topology t;
  const TemporaryFolder folder;
  REQUIRE(train_in(folder.path(), plans_of(t.text())).exit() == 0);
  t.model = R"("type": "mlp", "hidden": [17], "activation": "tanh")";
  const Ran ran = train_in(folder.path(), plans_of(t.text(), {"run.steps=30"}), true);
  CHECK(ran.exit() == 6);
  CHECK(ran.reason() == "the checkpoint: \"0.weight\" is [16, 6], and in this model [17, 6]");
}

TEST_CASE("a run: a directory that holds a run or is in use is refused") {
  const TemporaryFolder folder;
  REQUIRE(train_in(folder.path(), plans_of(Topology{}.text())).exit() == 0);
  const std::string report = read_text(folder.path() + "/report.json");
  const Ran second = train_in(folder.path(), plans_of(Topology{}.text()));
  CHECK(second.exit() == 2);
  CHECK(second.reason() == folder.path() + " already holds a run; name another directory");
  CHECK(read_text(folder.path() + "/report.json") == report);
}
