// Training on emulated GPUs, whose queues run late, is training on the host, bit for bit.
#include <csignal>

#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/emulated_gpus.h"

using namespace lanewise;

namespace {

constexpr int kDelayUs = 200;

Ran on_gpus(int gpus, const std::string& text, std::vector<std::string> sets = {}) {
  const EmulatedGpus here(gpus, kDelayUs);
  sets.insert(sets.end(), {"run.reduction=reference", "run.fuse=off"});
  for (int lane = 0; lane < 8; ++lane) sets.push_back(fmt::format("lane{}.device=cuda:{}", lane, lane * gpus / 8));
  return train(text, sets);
}

void check_equal(const Ran& gpu, const Ran& host) {
  REQUIRE_MESSAGE(host.exit() == gpu.exit(), gpu.reason());
  CHECK(gpu.metrics == host.metrics);
  CHECK(gpu.report["weights_sha256"] == host.report["weights_sha256"]);
  CHECK(gpu.report["reason"] == host.report["reason"]);
  for (const auto& [stream, counts] : host.report["samples"].items())
    CHECK(gpu.report["samples"][stream]["trained"] == counts["trained"]);
  CHECK(gpu.report["evaluation"] == host.report["evaluation"]);
}

Topology topology(const std::string& model, const std::string& run, const std::string& optimizer = "") {
  Topology t;
  t.model = model;
  t.run = run;
  t.optimizer = optimizer.empty() ? R"("name": "adamw", "lr": 0.01)" : optimizer;
  return t;
}

const std::string kMlp = R"("type": "mlp", "hidden": [8], "kernel": "library")",
                  kGru = R"("type": "gru", "hidden": 4, "kernel": "library")",
                  kLstm = R"("type": "lstm", "hidden": 4, "layers": 2, "kernel": "library")",
                  kLinear = R"("type": "linear", "kernel": "library")";

}  // namespace

TEST_CASE("device training: every model trains on one, two and eight GPUs as on the host, bit for bit") {
  for (const std::string& model : {kLinear, kMlp, kGru, kLstm}) {
    for (const char* const dtype : {"float32", "float64"}) {
      const Topology t =
          topology(model, fmt::format(R"("steps": 23, "seed": 7, "state": "carry", "dtype": "{}")", dtype));
      const Ran host = train(t.text());
      for (const int gpus : {1, 2, 8}) {
        CAPTURE(model);
        CAPTURE(dtype);
        CAPTURE(gpus);
        check_equal(on_gpus(gpus, t.text()), host);
      }
    }
  }
}

TEST_CASE("device training: gradients reduced in parts, while the backward goes on, train what those of the whole do") {
  const std::string deep = R"("type": "mlp", "hidden": [16, 16, 16, 16], "kernel": "library")";
  for (const std::string& model : {deep, kGru, kLstm}) {
    for (const char* const run : {R"("steps": 20, "state": "carry")", R"("steps": 12, "accumulate": 2)",
                                  R"("steps": 12, "tbptt": 3, "state": "carry", "dtype": "float64")"}) {
      for (const int gpus : {2, 8}) {
        CAPTURE(model);
        CAPTURE(run);
        CAPTURE(gpus);
        EmulatedGpus here(gpus, kDelayUs);
        std::vector<std::string> sets = {"run.reduction=deterministic", "run.fuse=off"};
        for (int lane = 0; lane < 8; ++lane)
          sets.push_back(fmt::format("lane{}.device=cuda:{}", lane, lane * gpus / 8));
        const std::string text = topology(model, run).text();
        const Ran whole = train(text, sets);
        REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
        CHECK_FALSE(whole.report["devices"][0].contains("parts"));
        here.set_part_bytes(256);
        const Ran parts = train(text, sets);
        check_equal(parts, whole);
        const auto& lane = parts.report["devices"][7];
        const int count = lane["parts"];
        CHECK(count >= 2);
        CHECK(lane["early_parts"].get<int>() > 8 * (count - 1));  // in all rounds but the first ones
        CHECK(lane["replayed_rounds"] == 0);
        CHECK(lane["not_recorded"] == "its gradients are reduced in parts while the backward goes on");
      }
    }
  }
}

TEST_CASE("device training: in parts, too, a step that is not finite is held back, and lanes without rows take part") {
  Topology t =
      topology(R"("type": "mlp", "hidden": [16, 16], "kernel": "library")", R"("steps": 100, "non_finite": "skip")");
  t.source = R"("type": "script")";
  write_scripts({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 5, at::kFloat);
  for (auto& [stream, script] : scripts()) {
    if (stream == "gen2" || stream == "gen3") script[7].tag.weight = 0;  // all of lane1's
  }
  EmulatedGpus here(4, kDelayUs);
  std::vector<std::string> sets = {"run.reduction=deterministic", "run.fuse=off"};
  for (int lane = 0; lane < 8; ++lane) sets.push_back(fmt::format("lane{}.device=cuda:{}", lane, lane / 2));
  const Ran whole = train(t.text(), sets);
  here.set_part_bytes(64);
  const Ran parts = train(t.text(), sets);
  check_equal(parts, whole);
  CHECK(parts.report["skipped"]["steps"] == 1);
  CHECK(parts.report["devices"][0]["parts"] == 6);
}

TEST_CASE("device training: windows, rounds that add up, dropout, clipping, schedules and checks of the weights") {
  struct Variant {
    std::string model, run, optimizer;
  };
  for (const Variant& v :
       {Variant{kGru, R"("tbptt": 3, "state": "carry")", ""}, Variant{kGru, R"("state": "zero")", ""},
        Variant{kGru, R"("accumulate": 3, "state": "carry")", ""},
        Variant{R"("type": "mlp", "hidden": [8, 8], "dropout": 0.3, "kernel": "library")", "", ""},
        Variant{R"("type": "lstm", "hidden": 4, "layers": 2, "kernel": "library", "dropout": 0.3)",
                R"("state": "carry")", ""},
        Variant{kMlp, R"("verify_every": 4)", ""},
        Variant{kMlp, "", R"("name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": true)"},
        Variant{kMlp, "", R"("name": "adam", "lr": 0.1, "schedule": "cosine")"}}) {
    CAPTURE(v.model);
    CAPTURE(v.run);
    CAPTURE(v.optimizer);
    const Topology t =
        topology(v.model, R"("steps": 20, "seed": 7)" + (v.run.empty() ? "" : ", " + v.run), v.optimizer);
    const Ran host = train(t.text());
    REQUIRE_MESSAGE(host.exit() == 0, host.reason());
    for (const int gpus : {1, 4}) {
      const Ran gpu = on_gpus(gpus, t.text());
      if (v.run.find("tbptt") == std::string::npos) {
        check_equal(gpu, host);
      } else {  // a stream's losses are added up in another order; nothing is computed from them
        CHECK(gpu.report["weights_sha256"] == host.report["weights_sha256"]);
      }
    }
  }
}

TEST_CASE("device training: real data with missing values, masked ends, restarts and evaluations") {
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"run.steps=40", "evaluate.every=16"},
        std::vector<std::string>{"run.on_end=mask", "run.passes=1", "gen.rows=0:40"},
        std::vector<std::string>{"run.passes=2", "gen.rows=0:20", "run.tbptt=4"},
        std::vector<std::string>{"run.on_end=first", "run.passes=1", "gen.rows=0:40", "gen3.rows=0:25"}}) {
    const auto run = [](std::vector<std::string> all) {
      std::vector<Override> overrides;
      all.push_back("models.net.kernel=library");
      for (std::string& one : all) overrides.push_back({Override::Kind::kSet, std::move(one), ""});
      const TemporaryFolder folder;
      return train_in(folder.path() + "/run", plan_file("configs/flights16.json", test_registry(),
                                                        {.overrides = overrides, .cores = 2, .infer = true}));
    };
    std::vector<std::string> on_gpu = sets;
    on_gpu.insert(on_gpu.end(), {"lane.device=cuda:0", "run.fuse=off"});
    const Ran host = run(sets);
    CAPTURE(sets.front());
    REQUIRE_MESSAGE(host.exit() == 0, host.reason());
    const EmulatedGpus one(1, kDelayUs);
    const Ran gpu = run(on_gpu);
    check_equal(gpu, host);
  }
}

TEST_CASE("device training: a step that is not finite is held back on the device, and told a round later") {
  for (const char* const rule : {"skip", "stop", "allow"}) {
    for (const int accumulate : {1, 2}) {
      CAPTURE(rule);
      CAPTURE(accumulate);
      Topology t = topology(kGru, fmt::format(R"("steps": 100, "state": "carry", "non_finite": "{}", "accumulate": {})",
                                              rule, accumulate));
      t.source = R"("type": "script")";
      write_scripts({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 5, at::kFloat);
      const Ran host = train(t.text());
      const Ran gpu = on_gpus(4, t.text());
      CHECK(gpu.exit() == host.exit());
      CHECK(gpu.metrics == host.metrics);
      CHECK(gpu.report["steps"] == host.report["steps"]);
      if (std::string(rule) == "skip") CHECK(gpu.report["weights_sha256"] == host.report["weights_sha256"]);
      if (std::string(rule) == "stop") CHECK(gpu.report["weights_sha256"].is_null());  // work on them may go on
      const nlohmann::ordered_json::json_pointer skips("/skipped/steps");
      CHECK(gpu.report.value(skips, 0) == host.report.value(skips, 0));
      if (std::string(rule) == "stop") CHECK(gpu.reason().find("stream gen11, run 0, seq 5") != std::string::npos);
    }
  }
}

TEST_CASE("device training: stopped and resumed, there or on the host, is never stopped") {
  Topology t = topology(kGru, R"("steps": 30, "state": "carry", "checkpoint": {"every": 7})");
  t.top = R"(, "evaluate": { "steps": 5, "set": { "gen.samples": 5 } })";
  const Ran host = train(t.text());
  const EmulatedGpus two(2, kDelayUs);
  std::vector<std::string> sets = {"run.reduction=reference"};
  for (int lane = 0; lane < 8; ++lane) sets.push_back(fmt::format("lane{}.device=cuda:{}", lane, lane / 4));
  int stopped = 0;
  const std::pair<int, bool> cases[] = {{3, true}, {100, true}, {100, false}, {170, false}, {700, true}};
  for (const auto& [stop_after, there] : cases) {
    CAPTURE(stop_after);
    CAPTURE(there);
    const TemporaryFolder folder;
    const std::string directory = folder.path() + "/run";
    int asked = 0;
    const Ran first = train_in(directory, plans_of(t.text(), sets, test_registry()), false,
                               [&] { return ++asked > stop_after ? SIGTERM : 0; });
    if (first.exit() != 0) REQUIRE_MESSAGE(first.exit() == 11, first.reason());
    stopped += first.exit() == 11 ? 1 : 0;
    const std::vector<std::string> none;
    const Ran second = train_in(directory, plans_of(t.text(), there ? sets : none, test_registry()), true);
    REQUIRE_MESSAGE(second.exit() == 0, second.reason());
    CHECK(second.metrics == host.metrics);
    CHECK(second.report["weights_sha256"] == host.report["weights_sha256"]);
    CHECK(second.report["evaluation"] == host.report["evaluation"]);
  }
  CHECK(stopped >= 3);
}

TEST_CASE("device training: a tap hears of every step, also of two at once before a checkpoint or an evaluation") {
  Topology t = topology(kMlp, R"("steps": 40, "verify_every": 11, "checkpoint": {"every": 7})");
  t.extra = R"(, { "id": "log", "type": "metrics", "in": [ { "from": "opt.step" } ] })";
  t.top = R"(, "evaluate": { "every": 9, "steps": 3 })";
  const Ran gpu = on_gpus(2, t.text());
  REQUIRE_MESSAGE(gpu.exit() == 0, gpu.reason());
  CHECK(gpu.files.at("steps.jsonl") == gpu.metrics);
  CHECK(gpu.metrics == train(t.text()).metrics);
}

TEST_CASE("device training: predictions of the training are those of the host") {
  Topology t = topology(kMlp, R"("steps": 9)");
  t.extra =
      R"(, { "id": "out", "repeat": 8, "type": "predictions", "in": [ { "from": "lane.prediction", "take": 1 } ],
                "each": { "file": ["p0.csv", "p1.csv", "p2.csv", "p3.csv", "p4.csv", "p5.csv", "p6.csv", "p7.csv"] } })";
  const Ran host = train(t.text()), gpu = on_gpus(2, t.text());
  REQUIRE_MESSAGE(host.exit() == 0, host.reason());
  check_equal(gpu, host);
  for (const char* const file : {"p0.csv", "p7.csv"}) {
    CHECK(host.files.at(file).size() > 500);
    CHECK(gpu.files.at(file) == host.files.at(file));
  }
}

TEST_CASE("device training: rounds that are alike are recorded and replayed; the report says why others are not") {
  const Ran plain = on_gpus(1, topology(kMlp, R"("steps": 20)").text());
  CHECK(plain.report["devices"].size() == 8);
  CHECK(plain.report["devices"][3]["device"] == "cuda:0");
  CHECK(plain.report["devices"][3]["replayed_rounds"] >= 16);
  const Ran dropout = on_gpus(
      1, topology(R"("type": "mlp", "hidden": [8], "dropout": 0.5, "kernel": "library")", R"("steps": 20)").text());
  CHECK(dropout.report["devices"][3]["replayed_rounds"] == 0);
  CHECK(dropout.report["devices"][3]["not_recorded"] == "the masks of dropout are drawn on the host");
}
