// Programs of one's own as sources, from outside: training, exact resume, and how a run ends when one of them fails.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A function, which a resumed run asks for the same samples again, and an object that saves its state.
const char* const kFunction = R"(
import os, signal, sys, time
import numpy as np
from lanewise import serve

def sim(seed, stream):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(3)
    for _ in range(int(os.environ.get("LENGTH", 10**9))):
        after = 0.8 * x + 0.3 * rng.standard_normal(3)
        yield x, after[:1]
        x = after
serve(sim)
)";
const char* const kState = R"(
import os
import numpy as np
from lanewise import serve

class Walk:
    def __init__(self, seed, stream):
        self.rng, self.x, self.made = np.random.default_rng(seed), np.zeros(3), 0
        self.log = os.environ["MADE"] + "/" + stream

    def __iter__(self):
        while self.made < 10**9:
            self.made += 1
            if self.made % 10 == 0:
                with open(self.log, "a") as f:
                    f.write(f"{self.made}\n")
            before, self.x = self.x, 0.8 * self.x + 0.3 * self.rng.standard_normal(3)
            yield before, self.x[:1]

    def state(self):
        return {"rng": self.rng.bit_generator.state, "x": list(self.x), "made": self.made}

    def restore(self, state):
        self.rng.bit_generator.state, self.x, self.made = state["rng"], np.array(state["x"]), state["made"]
        with open(self.log, "a") as f:
            f.write("restored\n")

serve(Walk)
)";

// `streams` processes of the program in two lanes, or one a lane where that is odd.
std::string pipeline(const TempDir& dir, const std::string& command, int streams = 4, const std::string& run = "",
                     const std::string& params = "") {
  const std::string root = fs::current_path().string();
  const std::string text = fmt::format(
      R"({{
    "name": "own",
    "models": {{ "net": {{ "type": "mlp", "hidden": [8] }} }},
    "nodes": [
      {{ "id": "gen", "repeat": {0}, "type": "process", "params": {{
        "command": {1}, "environment": {{ "PYTHONPATH": "{2}/tools/python", "MADE": "{3}" }} {5} }} }},
      {{ "id": "pair", "repeat": {6}, "type": "pair", "in": [ {{ "from": "gen", "take": {7} }} ] }},
      {{ "id": "lane", "repeat": {6}, "type": "compute", "in": [ {{ "from": "pair", "take": 1 }}, {{ "from": "opt", "initial": 1 }} ],
        "device": "cpu:*", "params": {{ "model": "net" }} }},
      {{ "id": "reduce", "type": "allreduce", "in": [ {{ "from": "lane" }} ] }},
      {{ "id": "opt", "type": "optimizer", "in": [ {{ "from": "reduce" }} ], "params": {{ "lr": 0.01 }} }} ],
    "run": {{ "seed": 5, "threads": 2, {4} }} }})",
      streams, command, root, dir.path("made"), run.empty() ? R"("steps": 60, "checkpoint": { "every": 20 })" : run,
      params, streams % 2 == 0 ? streams / 2 : streams, streams % 2 == 0 ? 2 : 1);
  fs::create_directories(dir.path("made"));
  return dir.write("p.json", text);
}

std::string python(const TempDir& dir, const std::string& program) {
  return fmt::format(R"(["{}/.venv/bin/python", "{}"])", fs::current_path().string(), dir.write("sim.py", program));
}
std::string evil(const std::string& fault, int after) {
  const std::string root = fs::current_path().string();
  return fmt::format(R"(["{0}/.venv/bin/python", "{0}/tests/evil_generator.py", "{1}", "--after", "{2}"])", root, fault,
                     after);
}

// Processes whose command line holds this.
std::vector<std::string> processes_of(const std::string& part) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(file)), {});
    std::ranges::replace(line, '\0', ' ');
    if (line.find(part) != std::string::npos) found.push_back(name);
  }
  return found;
}

bool soon(double seconds, const std::function<bool()>& holds) {
  const Clock::time_point until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!holds() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

}  // namespace

TEST_CASE("generators: the Python of the README is that of configs/custom_python.json, which trains") {
  const std::string program = read_text("configs/generators/sim.py");
  CHECK(read_text("README.md").find("```python\n" + program + "```\n") != std::string::npos);
  const TempDir dir;
  const Ran ran = run_in(dir, "run", {"configs/custom_python.json", "--quiet", "--set", "run.steps=100"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  CHECK(ran.report.at("evaluation").at("n") == 1600);
}

TEST_CASE("generators: a program trains from any number of streams, twice alike") {
  for (const int streams : {4, 3}) {
    const TempDir dir;
    const std::string file = pipeline(dir, python(dir, kFunction), streams);
    const Ran ran = run_in(dir, "run", {file, "--quiet"});
    INFO(ran.finished.err);
    REQUIRE(ran.finished.exit == 0);
    CHECK(ran.report.at("steps") == 60);
    CHECK(ran.report.at("samples").size() == static_cast<std::size_t>(streams));
    for (const auto& [stream, account] : ran.report.at("samples").items()) CHECK(account.at("trained") == 60);
    const Ran again = run_in(dir, "again", {file, "--quiet"});
    CHECK(again.report.at("weights_sha256") == ran.report.at("weights_sha256"));
  }
}

TEST_CASE("generators: a run that is killed goes on bit for bit, from states, or by making samples again") {
  for (const char* const program : {kState, kFunction}) {
    const TempDir dir;
    // Few slots, so that a program's states are never far ahead of what was trained.
    const std::string file = pipeline(dir, python(dir, program), 4, R"("steps": 400, "checkpoint": { "every": 40 })",
                                      R"(, "slots": 8)");
    const Ran whole = run_in(dir, "whole", {file, "--quiet"});
    INFO(whole.finished.err);
    REQUIRE(whole.finished.exit == 0);
    {
      Process process(lanewise_argv({"run", file, "--quiet", "--set", "run.minutes=2", "--out", dir.path("killed")}));
      REQUIRE(process.wait_for_file(dir.path("killed/checkpoints/step-000000000120/manifest.json")));
      process.send(SIGKILL);
      process.wait();
    }
    CHECK(soon(2, [&] { return processes_of(dir.path("sim.py")).empty(); }));
    fs::remove(dir.path("made/gen0"));
    const Finished resumed = lanewise_command({"resume", dir.path("killed"), "--quiet"});
    INFO(resumed.err);
    REQUIRE(resumed.exit == 0);
    const nlohmann::json report = read_json(dir.path("killed/report.json"));
    CHECK(report.at("weights_sha256") == whole.report.at("weights_sha256"));
    CHECK(report.at("resumed_after").get<int>() >= 120);
    CHECK(read_text(dir.path("killed/metrics.jsonl")) == read_text(dir.path("whole/metrics.jsonl")));
    if (program == kState) CHECK(read_text(dir.path("made/gen0")).starts_with("restored\n"));
  }
}

TEST_CASE("generators: what programs have started themselves is gone when lanewise is killed, too") {
  const TempDir dir;
  const std::string helper = dir.path("helper");
  const std::string starts = fmt::format(
      "import subprocess\nsubprocess.Popen(['/bin/sh', '-c', 'sleep 3600; :', '{}'], stdout=subprocess.DEVNULL)\n",
      helper);
  const std::string file = pipeline(dir, python(dir, starts + kFunction), 4, R"("minutes": 2)");
  Process process(lanewise_argv({"run", file, "--quiet", "--out", dir.path("run")}));
  REQUIRE(soon(20, [&] { return processes_of(helper).size() == 4; }));
  process.send(SIGKILL);
  process.wait();
  CHECK(soon(2, [&] { return processes_of(helper).empty(); }));
}

TEST_CASE("generators: an evaluation has processes of its own, and repeats bit for bit") {
  const TempDir dir;
  std::string text = read_text(pipeline(dir, python(dir, kFunction)));
  text.insert(text.rfind('}'), R"(, "evaluate": { "every": 20, "steps": 10 })");
  const std::string file = dir.write("p.json", text);
  const Ran ran = run_in(dir, "run", {file, "--quiet"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  CHECK(lines_of(read_text(dir.path("run/evaluations.jsonl"))).size() == 3);
  const Finished eval = lanewise_command({"eval", dir.path("run"), "--json"});
  INFO(eval.err);
  REQUIRE(eval.exit == 0);
  const auto last = nlohmann::json::parse(lines_of(read_text(dir.path("run/evaluations.jsonl"))).back());
  CHECK(nlohmann::json::parse(eval.out).at("loss") == last.at("loss"));
}

TEST_CASE("generators: one that fails ends the run within a second, named with its process, and all others leave") {
  const std::pair<const char*, const char*> faults[] = {
      {"kill", "was killed by signal 9 (SIGKILL; possibly out of memory), after it had told of 40 samples"},
      {"exit_3", "has left with status 3, after it had told of 40 samples"},
      {"exit_0", "has left with status 0, after it had told of 40 samples"},
      {"exception", "cannot go on, after it had told of 40 samples of run 0:\n"},
      {"frame_crc", "broke the protocol: crc: of frame 40, after it had told of 41 samples of run 0"}};
  for (const auto& [fault, text] : faults) {
    CAPTURE(fault);
    const TempDir dir;
    const std::string file = pipeline(dir, evil(fault, 40), 4, R"("steps": 10000)");
    const Ran ran = run_in(dir, "run", {file, "--quiet"});
    INFO(ran.finished.err);
    CHECK(ran.finished.exit == 5);
    CHECK(ran.finished.err.find("error: gen") == 0);
    CHECK(ran.finished.err.find(text) != std::string::npos);
    CHECK(ran.finished.err.find(", process ") != std::string::npos);
    CHECK(ran.report.at("exit") == 5);
  }
}

TEST_CASE("generators: one that fails may be started again, or its stream may end") {
  const TempDir dir;
  const std::string again = pipeline(dir, evil("kill", 40), 2, R"("steps": 100)", R"(, "on_failure": "restart")");
  const Ran restarted = run_in(dir, "restarted", {again, "--quiet"});
  INFO(restarted.finished.err);
  CHECK(restarted.finished.exit == 0);
  CHECK(restarted.report.at("steps") == 100);
  CHECK(restarted.finished.err.find("it is started again ") != std::string::npos);
  const std::string ends = pipeline(dir, evil("kill", 40), 2, R"("passes": 1)", R"(, "on_failure": "end")");
  const Ran ended = run_in(dir, "ended", {ends, "--quiet"});
  INFO(ended.finished.err);
  CHECK(ended.finished.err.find("its stream ends here (on_failure)") != std::string::npos);
}

TEST_CASE(
    "generators: of sixteen pendulums the model knows the next observation five times as well as who says no change") {
  const TempDir dir;
  const Ran ran = run_in(dir, "run", {"configs/gym16.json", "--quiet", "--set", "run.steps=2000"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  const nlohmann::json& evaluation = ran.report.at("evaluation");  // by seeds that the training has not seen
  CHECK(evaluation.at("n") == 6400);
  CHECK(std::sqrt(evaluation.at("mse").get<double>()) <=
        std::sqrt(evaluation.at("baselines").at("last").get<double>()) / 5);
}

TEST_CASE("generators: that an evaluation or a prediction may never end is told where it is planned") {
  const TempDir dir;
  std::string text = read_text(pipeline(dir, evil("none", 0), 2, R"("steps": 3)"));
  text.insert(text.rfind('}'), R"(, "evaluate": { "every": 3, "set": { "gen.samples": 5 } })");
  const std::string bounded = dir.write("bounded.json", text);
  const Ran ran = run_in(dir, "run", {bounded, "--quiet"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  CHECK(ran.finished.err.find("may be endless") == std::string::npos);
  const std::string open = dir.write("open.json", replaced(text, R"(, "set": { "gen.samples": 5 })", ""));
  CHECK(lanewise_command({"graph", open})
            .out.find("note: \"gen0\" may be endless, as far as is known, and then an evaluation never ends; "
                      "\"samples\" "
                      "bounds it, or evaluate.steps\n") != std::string::npos);
  const Finished predicted = lanewise_command({"predict", dir.path("run"), "--set", "gen.samples=4"});
  CHECK(predicted.exit == 0);
  CHECK(predicted.err.find("may be endless") == std::string::npos);
}

TEST_CASE("generators: a program is found by its own PATH, and no shell takes part") {
  const TempDir dir;
  fs::create_directories(dir.path("bin"));
  const std::string root = fs::current_path().string();
  const std::string program =
      dir.write("bin/own_generator",
                fmt::format("#!/bin/sh\nexec {0}/.venv/bin/python {0}/tests/evil_generator.py none\n", root));
  fs::permissions(program, fs::perms::owner_all);
  std::string text = read_text(pipeline(dir, R"(["own_generator"])", 2, R"("steps": 5)"));
  text = replaced(text, "\"PYTHONPATH\"", "\"PATH\": \"/nowhere:" + dir.path("bin") + "\", \"PYTHONPATH\"");
  const Ran ran = run_in(dir, "run", {dir.write("own.json", text), "--quiet"});
  INFO(ran.finished.err);
  CHECK(ran.finished.exit == 0);

  const std::string text_file = dir.write("bin/no_program", "touch " + dir.path("trap") + "\n");
  fs::permissions(text_file, fs::perms::owner_all);
  const Ran refused = run_in(dir, "refused", {pipeline(dir, "[\"" + text_file + "\"]"), "--quiet"});
  CHECK(refused.finished.exit == 5);
  CHECK(refused.finished.err.find("Exec format error") != std::string::npos);
  CHECK_FALSE(fs::exists(dir.path("trap")));
}

TEST_CASE("generators: a program that cannot be started, or gives other shapes, is named") {
  const TempDir dir;
  const std::string missing = pipeline(dir, R"(["no_such_program"])");
  Ran ran = run_in(dir, "missing", {missing, "--quiet"});
  CHECK(ran.finished.exit == 5);
  CHECK(ran.finished.err.find("gen0 (process): its program (no_such_program) cannot start the program "
                              "(\"no_such_program\" in ") != std::string::npos);
  const std::string other = pipeline(dir, python(dir, kFunction), 4, "", R"(, "x": [4], "y": [1])");
  ran = run_in(dir, "other", {other, "--quiet"});
  CHECK(ran.finished.exit == 5);
  CHECK(ran.finished.err.find("broke the protocol: shape: it gives x [3] and y [1], and the pipeline is planned with x "
                              "[4] and y [1]; let the parameters x and y say what it gives") != std::string::npos);
}

TEST_CASE("generators: one that is stopped is named, holds the run, and is gone on with without a loss") {
  const TempDir dir;
  const std::string file = pipeline(dir, python(dir, kFunction), 2, R"("steps": 3000, "stall_s": 0.5)");
  const Ran whole = run_in(dir, "whole", {file, "--quiet"});
  REQUIRE(whole.finished.exit == 0);
  Process process(lanewise_argv({"run", file, "--quiet", "--out", dir.path("held")}));
  REQUIRE(process.wait_for_file(dir.path("held/manifest.json")));
  std::vector<std::string> programs;
  REQUIRE(soon(10, [&] { return (programs = processes_of(dir.path("sim.py"))).size() == 2; }));
  const pid_t one = std::stoi(programs.front());
  kill(one, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(one, SIGCONT);
  const Finished finished = process.wait();
  INFO(finished.err);
  CHECK(finished.exit == 0);
  CHECK(finished.err.find(" has given nothing for ") != std::string::npos);
  CHECK(read_json(dir.path("held/report.json")).at("weights_sha256") == whole.report.at("weights_sha256"));
}

TEST_CASE("generators: a run that waits for one can be stopped, and the error of another is what is told") {
  const TempDir dir;
  const std::string file = pipeline(dir, evil("hang", 20), 2, R"("steps": 3000, "checkpoint": { "every": 5 })");
  Process process(lanewise_argv({"run", file, "--quiet", "--out", dir.path("hung")}));
  REQUIRE(process.wait_for_file(dir.path("hung/checkpoints/step-000000000020/manifest.json")));
  process.send(SIGTERM);
  const Finished finished = process.wait();
  INFO(finished.err);
  CHECK(finished.exit == 11);
  CHECK(finished.err.find("had nothing to give") != std::string::npos);
  CHECK(soon(3, [] { return processes_of("evil_generator.py hang --after 20").empty(); }));
}

TEST_CASE("generators: nothing of what a file names is started by check, graph, diff and explain-config") {
  const TempDir dir;
  const std::string trap = dir.write("trap.sh", "#!/bin/sh\ntouch " + dir.path("sprung") + "\n");
  fs::permissions(trap, fs::perms::owner_all);
  const std::string file = pipeline(dir, fmt::format(R"(["{}"])", trap));
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"check", file},
                                             {"graph", file},
                                             {"diff", file, file},
                                             {"explain-config", file, "gen.command"},
                                             {"explain-config", file, "--keys"}}) {
    const Finished finished = lanewise_command(command);
    INFO(finished.err);
    CHECK(finished.exit == 0);
  }
  CHECK_FALSE(fs::exists(dir.path("sprung")));
  CHECK(run_in(dir, "run", {file, "--quiet"}).finished.exit == 5);
  CHECK(fs::exists(dir.path("sprung")));
}

}  // namespace lanewise
