// `lanewise bench` from outside: where a round goes, what bounds it, what it tries, and how it ends.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A value of every sample's features is written out after so many seconds.
const char* const kSleeper = R"(
import sys, time
import numpy as np
from lanewise import serve

def sim(seed, stream):
    while True:
        if stream == "gen1":
            time.sleep(0.01)
        yield np.ones(3), np.ones(1)
serve(sim)
)";

nlohmann::json bench(std::vector<std::string> arguments, const Surroundings& around = {}) {
  arguments.insert(arguments.begin(), "bench");
  arguments.emplace_back("--json");
  const Finished finished = lanewise_command(arguments, around);
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  return nlohmann::json::parse(finished.out);
}

void check_shares(const nlohmann::json& report) {
  for (const nlohmann::json& lane : report.at("lanes")) {
    CAPTURE(lane.dump());
    double sum = 0, us = 0;
    for (const auto& [part, share] : lane.at("share").items()) {
      CHECK(share.get<double>() >= 0);
      sum += share.get<double>();
      us += lane.at("us").at(part).get<double>();
    }
    CHECK(sum == doctest::Approx(1));
    CHECK(lane.at("us").at("forward") > 0);
    CHECK(lane.at("us").at("backward") > 0);
  }
  for (const nlohmann::json& node : report.at("nodes")) {
    CAPTURE(node.dump());
    double sum = 0;
    for (const char* const share : {"busy", "starved", "blocked", "ready"}) sum += node.at(share).get<double>();
    CHECK(sum == doctest::Approx(1));
    CHECK(node.at("ready") >= 0);
    const double round = report.at("bottleneck").at("round_us");
    CHECK(node.at("busy").get<double>() * round <= doctest::Approx(node.at("us").get<double>()));  // of the same time
  }
  for (const char* const of : {"round_us", "steps_per_second", "samples_per_second"}) {
    CHECK(report.at(of).at("min") > 0);
    CHECK(report.at(of).at("min") <= report.at(of).at("median"));
    CHECK(report.at(of).at("median") <= report.at(of).at("max"));
  }
  const nlohmann::json& bottleneck = report.at("bottleneck");
  CHECK(bottleneck.at("free_us") <= bottleneck.at("round_us"));
  for (const auto& [name, free] : report.at("free_us").items()) CHECK(free >= bottleneck.at("free_us"));
}

}  // namespace

TEST_CASE("bench: the parts of each lane's round sum to one, as each node's shares do, and nothing is left behind") {
  const TempDir dir;
  const std::string config = fs::current_path().string() + "/configs/flights16.json";
  const nlohmann::json report = bench({config, "--seconds", "0.5"}, {.directory = dir.path()});
  CHECK(report.at("lanes").size() == 8);
  CHECK(report.at("nodes").size() == 16 + 16 + 8 + 8 + 2);
  CHECK(report.at("turns") == 5);
  check_shares(report);
  CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("bench: fused lanes are one that names its lanes; streams that are short begin again; --steps counts") {
  const nlohmann::json report = bench({"configs/sines16.json", "--steps", "500", "--set", "run.fuse=2", "--set",
                                       "gen.samples=20", "--set", "run.passes=2"});
  REQUIRE(report.at("lanes").size() == 2);
  CHECK(report.at("lanes").at(1).at("lanes") == nlohmann::json({"lane4", "lane5", "lane6", "lane7"}));
  check_shares(report);
  for (const nlohmann::json& trial : report.at("trials")) CHECK(!contains(trial.at("change"), "fuse"));
}

TEST_CASE("bench: a program that is slow is named, with what it would be to be rid of it") {
  const TempDir dir;
  const std::string root = fs::current_path().string();
  const std::string file = dir.write("slow.json", fmt::format(R"({{
    "name": "slow",
    "models": {{ "net": {{ "type": "mlp", "hidden": [8] }} }},
    "nodes": [
      {{ "id": "gen", "repeat": 2, "type": "process", "params": {{ "command": ["{0}/.venv/bin/python", "sim.py"],
         "environment": {{ "PYTHONPATH": "{0}/tools/python" }} }} }},
      {{ "id": "pair", "type": "pair", "in": [ {{ "from": "gen" }} ] }},
      {{ "id": "lane", "type": "compute", "in": [ {{ "from": "pair" }}, {{ "from": "opt", "initial": 1 }} ],
         "device": "cpu:*", "params": {{ "model": "net" }} }},
      {{ "id": "reduce", "type": "allreduce", "in": [ {{ "from": "lane" }} ] }},
      {{ "id": "opt", "type": "optimizer", "in": [ {{ "from": "reduce" }} ] }} ],
    "run": {{ "steps": 5 }} }})",
                                                              root));
  dir.write("sim.py", kSleeper);
  const nlohmann::json report = bench({file, "--seconds", "1"});
  check_shares(report);
  const nlohmann::json& bottleneck = report.at("bottleneck");
  INFO(bottleneck.dump());
  CHECK(bottleneck.at("name") == "gen");
  CHECK(bottleneck.at("busiest") == "gen1");
  CHECK(bottleneck.at("share") > 0.8);
  CHECK(bottleneck.at("times_as_fast") > 2);
  CHECK(contains(bottleneck.at("sentence"), "gen bounds a round: gen1 waits for its program or works "));
}

TEST_CASE("bench: a large model's lanes are named, and the text says so in one sentence") {
  const std::vector<std::string> arguments = {"bench",     "configs/minimal.json",
                                              "--seconds", "1",
                                              "--set",     "models.net.hidden=[400,400]",
                                              "--swap",    "opt={\"type\":\"optimizer\",\"params\":{\"name\":\"sgd\"}}",
                                              "--set",     "run.tbptt=64"};
  const Finished finished = lanewise_command(arguments);
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  INFO(finished.out);
  CHECK(contains(finished.out, "lane bounds a round: lane is busy "));
  CHECK(contains(finished.out, "; were lane free, a round would take "));
  for (const char* const part : {"wait", "forward", "backward", "reduce", "optimize", "generate", "steps/s",
                                 "samples/s", "busy", "starved", "blocked", "ready"})
    CHECK(contains(finished.out, part));
}

TEST_CASE("bench: what a run fails by, it fails by, with its exit code") {
  const TempDir dir;
  const auto ends = [&](const std::string& fault) {
    const std::string file = dir.write("faulty.json", faulty_pipeline(fault, R"({ "steps": 50 })"));
    const Finished finished = lanewise_command({"bench", file, "--json"});
    INFO(finished.err);
    CHECK(nlohmann::json::parse(finished.out).at("exit") == finished.exit);
    CHECK(finished.err.starts_with("error: "));
    return finished.exit;
  };
  CHECK(ends(R"({ "at": 5, "kind": "throw" })") == 70);
  CHECK(ends(R"({ "at": 5, "kind": "nan" })") == 10);
  CHECK(lanewise_command({"bench", dir.path("none.json")}).exit == 3);
  const Finished early = lanewise_command(
      {"bench", "configs/minimal.json", "--set", "gen.samples=50", "--set", "gen.on_end=first", "--steps", "1000"});
  CHECK(early.exit == 4);
  CHECK(contains(early.err, "ended after 50 samples, before the measurement was over"));
}

TEST_CASE("bench: SIGINT ends it with 11") {
  Process process(lanewise_argv({"bench", "configs/minimal.json", "--seconds", "600"}));
  REQUIRE(process.wait_to_catch(SIGHUP));  // with SIGINT, which the test's own library catches as well
  process.send(SIGINT);
  const Finished finished = process.wait();
  CHECK(finished.exit == 11);
  CHECK(contains(finished.err, "error: stopped by SIGINT"));
  CHECK(finished.out == "");
}

TEST_CASE("bench: a malformed length, two of them, and several processes are exit 2") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--steps", "0"}, "error: --steps takes a number of steps from 1 to 1000000000, not \"0\"\n"},
      {{"--seconds", "soon"}, "error: --seconds takes a number of seconds from 0.1 to 1000000, not \"soon\"\n"},
      {{"--steps", "5", "--seconds", "1"},
       "error: --steps and --seconds both say how much to measure; give one of them\n"}};
  for (const auto& [more, message] : cases) {
    std::vector<std::string> arguments = {"bench", "configs/minimal.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = lanewise_command(arguments);
    CHECK(finished.exit == 2);
    CHECK(finished.err == message);
  }
  const Finished several =
      lanewise_command({"bench", "configs/minimal.json"},
                       {.environment = {"WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}});
  CHECK(several.exit == 2);
  CHECK(several.err ==
        "error: lanewise bench measures one process, and the environment (WORLD_SIZE) says that there are several; "
        "start it without torchrun\n");
}

TEST_CASE("bench: on GPUs it says that the times are the host's") {
  const Finished finished =
      lanewise_command({"bench", "configs/gpu8.json", "--seconds", "0.5"},
                       {.environment = {"LANEWISE_EMULATED_GPUS=2",
                                        fmt::format("LANEWISE_EMULATED_NCCL={}", std::getenv("FAKE_NCCL"))}});
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  CHECK(contains(finished.out, "These are times of the host"));
  CHECK(contains(finished.out, " bound"));
}

}  // namespace lanewise
