// `lanewise resume`, `eval`, `predict` and `export` from outside, and what signals do to a run at any time.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <map>

#include <chrono>
#include <random>
#include <thread>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

// Two lanes of noisy sines with state carried, checkpoints and evaluations.
const char* const kPipeline = R"({
  "name": "stateful",
  "models": { "net": { "type": "gru", "hidden": 6 } },
  "nodes": [
    { "id": "gen", "repeat": 4, "type": "sine", "each": { "period": 7 }, "params": { "features": 3, "noise": 0.1, "samples": 120 } },
    { "id": "norm", "repeat": 4, "type": "normalize", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "pair", "repeat": 2, "type": "pair", "in": [ { "from": "norm", "take": 2 } ] },
    { "id": "lane", "repeat": 2, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "cpu:*", "params": { "model": "net" } },
    { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "lr": 0.01 } } ],
  "run": { "passes": 3, "seed": 5, "state": "carry", "checkpoint": { "every": 25, "keep": 2, "keep_best": 1 } },
  "evaluate": { "every": 50, "set": { "gen.samples": 30 } } })";

std::size_t lines_in(const std::string& path) { return lines_of(read_text(path)).size(); }

}  // namespace

TEST_CASE("resume: a run that was killed leaves what one that was not leaves") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Ran whole = run_in(dir, "whole", {file, "--quiet"});
  INFO(whole.finished.err);
  REQUIRE(whole.finished.exit == 0);
  CHECK(fs::exists(dir.path("whole/checkpoints/step-000000000360")));
  {
    Process process(lanewise_argv({"run", file, "--quiet", "--set", "run.minutes=2", "--out", dir.path("killed")}));
    REQUIRE(process.wait_for_file(dir.path("killed/checkpoints/step-000000000100/manifest.json")));
    process.send(SIGKILL);
    process.wait();
  }
  REQUIRE(lines_in(dir.path("killed/metrics.jsonl")) < 360);
  const Finished resumed = lanewise_command({"resume", dir.path("killed"), "--quiet"});
  INFO(resumed.err);
  REQUIRE(resumed.exit == 0);
  const nlohmann::json report = read_json(dir.path("killed/report.json"));
  CHECK(report.at("weights_sha256") == whole.report.at("weights_sha256"));
  CHECK(report.at("resumed_after").get<int>() >= 100);
  for (const char* const name : {"metrics.jsonl", "evaluations.jsonl", "weights.safetensors"}) {
    CAPTURE(name);
    CHECK(read_text(dir.path("whole/") + name) == read_text(dir.path("killed/") + name));
  }
}

TEST_CASE("resume: a run from standard input, changed on the way, goes on from any folder") {
  const TempDir dir;
  const Finished first = lanewise_command({"run", "-", "--quiet", "--set", "run.passes=1", "--out", dir.path("run")},
                                          {.input = kPipeline});
  REQUIRE(first.exit == 0);
  const Finished more =
      lanewise_command({"resume", "run", "--quiet", "--set", "run.passes=2"}, {.directory = dir.path()});
  INFO(more.err);
  REQUIRE(more.exit == 0);
  const Finished again = lanewise_command({"resume", "run", "--quiet"}, {.directory = dir.path()});
  CHECK(again.exit == 0);
  CHECK(read_json(dir.path("run/report.json")).at("steps") == 240);
}

TEST_CASE("resume: a run that cannot go on as it was asked to stays as it is") {
  const TempDir dir;
  const std::string file = dir.write("p.json", replaced(kPipeline, R"("passes": 3)", R"("steps": 30)"));
  REQUIRE(run_in(dir, "run", {file, "--quiet"}).finished.exit == 0);
  std::map<std::string, std::string> before;
  for (const char* const name : {"manifest.json", "report.json", "graph.dot", "metrics.jsonl", "weights.safetensors"})
    before[name] = read_text(dir.path("run/") + name);
  const Finished refused = lanewise_command({"resume", dir.path("run"), "--set", "models.net.hidden=7"});
  CHECK(refused.exit == 6);
  CHECK(refused.out == "");
  const auto json = nlohmann::json::parse(
      lanewise_command({"resume", dir.path("run"), "--set", "models.net.hidden=7", "--json"}).out);
  CHECK(json.at("exit") == 6);
  CHECK(json.at("begun") == false);
  for (const auto& [name, text] : before) {
    CAPTURE(name);
    CHECK(read_text(dir.path("run/") + name) == text);
  }
  CHECK(lanewise_command({"resume", dir.path("run"), "--quiet", "--set", "run.steps=40"}).exit == 0);
}

TEST_CASE("eval: repeats the run's last evaluation, and takes other streams by --set") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Ran ran = run_in(dir, "run", {file, "--quiet"});
  REQUIRE(ran.finished.exit == 0);
  const Finished same = lanewise_command({"eval", dir.path("run"), "--json", "--quiet"});
  INFO(same.err);
  REQUIRE(same.exit == 0);
  CHECK(nlohmann::json::parse(same.out) == ran.report.at("evaluation"));
  const Finished other =
      lanewise_command({"eval", dir.path("run"), "--json", "--quiet", "--set", "evaluate.set.gen.samples=7"});
  REQUIRE(other.exit == 0);
  CHECK(nlohmann::json::parse(other.out).at("n") == 28);
  const Finished best = lanewise_command({"eval", dir.path("run"), "--best", "--json", "--quiet"});
  REQUIRE(best.exit == 0);
  double least = 1e9;
  for (const std::string& line : lines_of(read_text(dir.path("run/evaluations.jsonl")))) {
    least = std::min(least, nlohmann::json::parse(line).at("mse").get<double>());
  }
  CHECK(nlohmann::json::parse(best.out).at("mse") == least);
}

TEST_CASE("predict: one line a sample, in order, in original units, and the run directory is only read") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  REQUIRE(run_in(dir, "run", {file, "--quiet"}).finished.exit == 0);
  const std::string report = read_text(dir.path("run/report.json"));
  const Finished ran =
      lanewise_command({"predict", dir.path("run"), "--set", "gen.samples=9", "--to", dir.path("p.csv")});
  INFO(ran.err);
  REQUIRE(ran.exit == 0);
  const std::vector<std::string> lines = lines_of(read_text(dir.path("p.csv")));
  REQUIRE(lines.size() == 1 + 4 * 9);
  CHECK(lines[0] == "phase,step,stream,run,seq,time,weight,y0,p0");
  for (int i = 0; i < 36; ++i) {
    CHECK(lines[i + 1].starts_with(fmt::format("predict,360,gen{},0,{},,1,", i % 4, i / 4)));
  }
  const Finished out = lanewise_command({"predict", dir.path("run"), "--set", "gen.samples=9"});
  CHECK(out.out == read_text(dir.path("p.csv")));
  CHECK(read_text(dir.path("run/report.json")) == report);
}

TEST_CASE("predict: endless streams need an end, whatever the run's evaluations have") {
  const TempDir dir;
  REQUIRE(run_in(dir, "run", {"configs/sines16.json", "--quiet", "--set", "run.steps=3"}).finished.exit == 0);
  const Finished endless = lanewise_command({"predict", dir.path("run")});
  CHECK(endless.exit == 3);
  CHECK(endless.err ==
        "command line\n  predict needs an end, since \"gen0\" is endless: give one, as in --set "
        "evaluate.steps=100\n1 problem; nothing was started\n");
  const Finished ended = lanewise_command({"predict", dir.path("run"), "--set", "evaluate.steps=2"});
  CHECK(ended.exit == 0);
  CHECK(lines_of(ended.out).size() == 1 + 2 * 16);
}

TEST_CASE("export: one file with the weights, the model and the normalisation") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  REQUIRE(run_in(dir, "run", {file, "--quiet"}).finished.exit == 0);
  const Finished ran = lanewise_command({"export", dir.path("run"), "--to", dir.path("m.safetensors")});
  INFO(ran.err);
  REQUIRE(ran.exit == 0);
  const std::string bytes = read_text(dir.path("m.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length)), meta = header.at("__metadata__");
  CHECK(header.contains("rnn.weight_hh_l0"));
  CHECK(nlohmann::json::parse(meta.at("models").get<std::string>()).at("net").at("hidden") == 6);
  CHECK(nlohmann::json::parse(meta.at("normalization").get<std::string>()).at("norm3").at("x_mean").size() == 3);
  // The file is one to begin another run with.
  const Ran again = run_in(dir, "again",
                           {file, "--quiet", "--set", "models.net.init=" + dir.path("m.safetensors"), "--set",
                            "run.passes=1", "--set", "opt.lr=1e-300"});
  INFO(again.finished.err);
  REQUIRE(again.finished.exit == 0);
  CHECK(again.report.at("weights_sha256") == read_json(dir.path("run/report.json")).at("weights_sha256"));
}

TEST_CASE("resume, eval, predict, export: what is no run, or holds no checkpoint, is told") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline), run = dir.path("run");
  REQUIRE(run_in(dir, "run", {file, "--quiet", "--set", "run.passes=1"}).finished.exit == 0);
  const auto told = [&](const std::vector<std::string>& arguments, int exit, const std::string& error) {
    const Finished finished = lanewise_command(arguments);
    CHECK(finished.exit == exit);
    CHECK(replaced(finished.err, dir.path(), "DIR") == "error: " + error + "\n");
  };
  told({"resume", dir.path("none")}, 2, "DIR/none holds no run: there is no manifest.json in it");
  told({"resume"}, 2, "lanewise resume needs a run's directory, such as runs/NAME-TIME; see `lanewise resume --help`");
  told({"export", run}, 2, "lanewise export needs a file to write; name it with --to FILE");
  told({"resume", run, "--set", "opt.name=sgd", "--set", "run.passes=4", "--quiet"}, 6,
       "the checkpoint's optimizer was another one: it holds \"exp_avg\", which sgd does not keep");
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(read_text(run + "/manifest.json"));
  manifest["pipeline"]["nodes"][0]["params"]["period"] = 8.5;
  manifest["digest"] = "0";
  dir.write("run/manifest.json", manifest.dump());
  told({"resume", run}, 6,
       "DIR/run/manifest.json was made from another plan than this version makes of it:\n  gen0.params.period: 8.5 -> "
       "7.0\n"
       "  name what is to be changed with --set, or go on with the version that made it");
  fs::remove_all(run + "/checkpoints");
  dir.write("run/manifest.json", "{}");
  told({"eval", run}, 6, "DIR/run/manifest.json is not the manifest of a run that this version can go on with");
}

TEST_CASE("run: a directory that is in use is refused, and nothing in it is touched") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  Process process(lanewise_argv({"run", file, "--quiet", "--set", "run.passes=100000", "--out", dir.path("run")}));
  REQUIRE(process.wait_for_file(dir.path("run/checkpoints/step-000000000025/manifest.json")));
  const Finished second = lanewise_command({"resume", dir.path("run")});
  CHECK(second.exit == 2);
  CHECK(second.err.find("is in use by another run") != std::string::npos);
  process.send(SIGTERM);
  CHECK(process.wait().exit == 11);
}

TEST_CASE(
    "signals: TERM at any moment ends a run with 11 and a checkpoint of its last step, and nothing is left behind") {
  const auto seed = std::random_device()();
  MESSAGE("seed ", seed);
  std::mt19937 random(seed);
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  for (int i = 0; i < 5; ++i) {
    const std::string out = dir.path(fmt::format("run{}", i));
    Process process(lanewise_argv({"run", file, "--quiet", "--set", "run.passes=100000", "--out", out}));
    REQUIRE(process.wait_for_file(out + "/manifest.json"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    process.send(i % 2 == 0 ? SIGTERM : SIGINT);
    const Finished finished = process.wait();
    INFO(finished.err);
    CHECK(finished.exit == 11);
    const nlohmann::json report = read_json(out + "/report.json");
    const int step = report.at("steps");
    CHECK(lines_in(out + "/metrics.jsonl") == static_cast<std::size_t>(step));
    if (step > 0) CHECK(fs::exists(fmt::format("{}/checkpoints/step-{:012}/manifest.json", out, step)));
    for (const auto& entry : fs::recursive_directory_iterator(out)) {
      CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
    }
  }
}

TEST_CASE("signals: USR1 tells where a run stands and does not disturb it") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Ran whole = run_in(dir, "whole", {file, "--quiet", "--set", "run.passes=20"});
  Process process(lanewise_argv({"run", file, "--quiet", "--set", "run.passes=20", "--out", dir.path("asked")}));
  REQUIRE(process.wait_for_file(dir.path("asked/checkpoints/step-000000000025/manifest.json")));
  for (int i = 0; i < 3; ++i) {
    process.send(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const Finished finished = process.wait();
  CHECK(finished.exit == 0);
  CHECK(finished.err.find("status: step ") != std::string::npos);
  CHECK(finished.err.find("gen0 -> norm0: ") != std::string::npos);
  CHECK(read_json(dir.path("asked/report.json")).at("weights_sha256") == whole.report.at("weights_sha256"));
}

TEST_CASE("signals: a source that waits for ever does not keep a run from ending") {
  const TempDir dir;
  const std::string file = dir.write("p.json", faulty_pipeline(R"({ "at": 5, "kind": "hold" })", R"({ "steps": 50 })"));
  Process process(lanewise_argv({"run", file, "--quiet", "--out", dir.path("run")}));
  REQUIRE(process.wait_for_file(dir.path("run/metrics.jsonl"), 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  process.send(SIGTERM);
  const Finished finished = process.wait();
  CHECK(finished.exit == 11);
  CHECK(finished.err.find("stopped after step 5, while fault1 had nothing to give") != std::string::npos);
  CHECK(fs::exists(dir.path("run/checkpoints/step-000000000005/manifest.json")));
}

}  // namespace lanewise
