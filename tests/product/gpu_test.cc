// Lanes on GPUs, without one: the command itself knows nothing of CUDA, and emulated GPUs train what the host trains.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The symbols that the command takes from libraries.
std::string symbols() {
  FILE* const pipe = ::popen((std::string("nm -D --undefined-only ") + std::getenv("LANEWISE")).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

// The shared libraries that a run opens, as the loader tells.
std::string opened(const TempDir& dir, std::vector<std::string> arguments) {
  const std::string log = dir.path("loader");
  REQUIRE(lanewise_command(std::move(arguments), {.environment = {"LD_DEBUG=files", "LD_DEBUG_OUTPUT=" + log}}).exit ==
          0);
  std::string text;
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    if (entry.path().filename().string().starts_with("loader.")) text += read_text(entry.path());
  }
  return text;
}

}  // namespace

TEST_CASE("gpu: the command needs no symbol of CUDA or NCCL, and opens their libraries for no lane on the host") {
  const std::string all = symbols();
  CHECK(contains(all, " U "));
  for (const char* const word : {"cuda", "Cuda", "CUDA", "nccl", " cu"}) {
    CAPTURE(word);
    CHECK_FALSE(contains(all, word));
  }
  const TempDir dir;
  const std::string files =
      opened(dir, {"run", "configs/minimal.json", "--quiet", "--set", "run.steps=3", "--out", dir.path("run")});
  CHECK(contains(files, "libtorch_cpu.so"));
  for (const char* const library : {"liblanewise_cuda", "libtorch_cuda", "libnccl"}) {
    CAPTURE(library);
    CHECK_FALSE(contains(files, library));
  }
}

TEST_CASE("gpu: gpu8 trains on eight emulated GPUs, and the report tells of them") {
  const TempDir dir;
  const auto run = [&](const std::string& name, std::vector<std::string> more, std::vector<std::string> environment) {
    std::vector<std::string> arguments = {"run", "configs/gpu8.json", "--quiet", "--out", dir.path(name)};
    more.insert(more.end(), {"run.steps=30", "models.net.kernel=library", "run.reduction=reference"});
    for (const std::string& set : more) arguments.insert(arguments.end(), {"--set", set});
    CHECK(lanewise_command(arguments, {.environment = std::move(environment)}).exit == 0);
  };
  run("gpu", {},
      {"LANEWISE_EMULATED_GPUS=8", "LANEWISE_EMULATED_DELAY_US=50",
       std::string("LANEWISE_EMULATED_NCCL=") + std::getenv("FAKE_NCCL")});
  run("cpu", {"lane.device=cpu:*"}, {});
  CHECK(read_text(dir.path("gpu/metrics.jsonl")) == read_text(dir.path("cpu/metrics.jsonl")));
  const nlohmann::json report = read_json(dir.path("gpu/report.json"));
  CHECK(report.at("devices").size() == 8);
  CHECK(report["devices"][7]["device"] == "cuda:7");
  CHECK(report["devices"][7]["name"] == "emulated");
  CHECK(report["exchange"] == "nccl");
}

TEST_CASE("gpu: a run of eight GPUs goes on with four when it is told to, and is left as it is until then") {
  const TempDir dir;
  const std::string nccl = std::string("LANEWISE_EMULATED_NCCL=") + std::getenv("FAKE_NCCL"), out = dir.path("run");
  REQUIRE(lanewise_command({"run", "configs/gpu8.json", "--quiet", "--out", out, "--set", "run.steps=10"},
                           {.environment = {"LANEWISE_EMULATED_GPUS=8", nccl}})
              .exit == 0);
  const std::string report = read_text(out + "/report.json");
  const auto resume = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"resume", out, "--quiet", "--set", "run.steps=20"});
    return lanewise_command(more, {.environment = {"LANEWISE_EMULATED_GPUS=4", nccl}});
  };
  const Finished refused = resume({});
  CHECK(refused.exit == 9);
  CHECK(refused.err ==
        "error: lane4 is on cuda:4, and 4 GPUs are here; on these it runs with --set lane.device=cuda:*, on virtual "
        "devices of the host with --set lane.device=cpu:*\n");
  CHECK(read_text(out + "/report.json") == report);
  const Finished resumed = resume({"--set", "lane.device=cuda:*"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.exit == 0);
  const nlohmann::json after = read_json(out + "/report.json");
  CHECK(after.at("steps") == 20);
  CHECK(after.at("devices").back().at("device") == "cuda:3");
  CHECK(resume({}).exit == 0);  // the manifest now has the four
}

TEST_CASE("gpu: a run whose devices are refused leaves no directory, and one that was there stays empty") {
  const TempDir dir;
  fs::create_directory(dir.path("there"));
  const std::vector<std::string> run = {"run", fs::absolute("configs/minimal.json").string(), "--set",
                                        "lane.device=cuda:0", "--quiet"};
  for (const char* const out : {"", "new", "there"}) {
    std::vector<std::string> arguments = run;
    if (*out != 0) arguments.insert(arguments.end(), {"--out", out});
    const Finished refused = lanewise_command(
        arguments, {.environment = {"LANEWISE_EMULATED_GPUS=1", "LANEWISE_REPLAY=no"}, .directory = dir.path()});
    CHECK(refused.exit == 2);
    CHECK(refused.err ==
          "error: the environment variable LANEWISE_REPLAY is \"no\", and has to be \"off\", or unset\n");
    CHECK(refused.out == "");
  }
  CHECK(fs::is_empty(dir.path("there")));
  CHECK_FALSE(fs::exists(dir.path("new")));
  CHECK(fs::is_empty(dir.path("runs")));
}

TEST_CASE("gpu: how a run has ended is its exit code also where standard output cannot be written") {
  const TempDir dir;
  const Finished run = lanewise_command(
      {"run", "configs/minimal.json", "--quiet", "--out", dir.path("run"), "--peer-timeout", "1", "--set",
       "run.steps=1000", "--set", "lane.device=cuda:0"},
      {.environment = {"LANEWISE_EMULATED_GPUS=1", "LANEWISE_EMULATED_HANG=2:50"}, .output = "/dev/full"});
  CHECK(run.exit == 9);
  CHECK(read_json(dir.path("run/report.json")).at("exit") == 9);
  CHECK(contains(run.err, "has not done its work in 1 s"));
  CHECK(contains(run.err, "warning: standard output cannot be written (No space left on device)"));
}

TEST_CASE("gpu: an evaluation by another loss leaves the training's alone") {
  const TempDir dir;
  const auto run = [&](const std::string& name, const std::string& file) {
    CHECK(lanewise_command(
              {"run", file, "--quiet", "--out", dir.path(name), "--set", "run.steps=30", "--set", "lane.loss=huber",
               "--set", "lane.delta=0.1", "--set", "lane.device=cuda:0", "--set", "evaluate.every=10"},
              {.environment = {"LANEWISE_EMULATED_GPUS=1"}})
              .exit == 0);
    return read_text(dir.path(name) + "/metrics.jsonl");
  };
  const std::string same = run("same", "configs/minimal.json");
  const std::string base = fs::absolute("configs/minimal.json").string();
  const std::string other =
      dir.write("other.json", "{ \"base\": \"" + base + "\", \"set\": { \"evaluate.set.lane.loss\": \"mse\" } }");
  CHECK(run("other", other) == same);
}

TEST_CASE("gpu: a GPU that hangs ends the run in time with exit 9, and the lanes' last rounds are told") {
  const TempDir dir;
  for (const char* const device : {"cuda:0", "cuda:*"}) {
    CAPTURE(device);
    const auto start = std::chrono::steady_clock::now();
    const Finished run =
        lanewise_command({"run", "configs/gpu8.json", "--quiet", "--out", dir.path(std::string("run") + device[5]),
                          "--peer-timeout", "1", "--set", "run.steps=1000", "--set", "models.net.kernel=library",
                          "--set", "run.fuse=off", "--set", std::string("lane.device=") + device},
                         {.environment = {"LANEWISE_EMULATED_GPUS=8", "LANEWISE_EMULATED_HANG=8:50",
                                          std::string("LANEWISE_EMULATED_NCCL=") + std::getenv("FAKE_NCCL")}});
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
    CHECK(run.exit == 9);
    CAPTURE(run.err);
    CHECK(contains(run.err, "has not done its work in 1 s: the GPU hangs, or is slower than --peer-timeout allows"));
    // lane3 is one round behind those that it does not wait for.
    const std::regex line(R"(lane(\d) \(cuda:\d\): issued (\d+) rounds, of which (\d+) are done, (\d+) were packed)");
    std::map<int, int> done;
    for (std::sregex_iterator at(run.err.begin(), run.err.end(), line), none; at != none; ++at)
      done[std::stoi((*at)[1])] = std::stoi((*at)[3]);
    REQUIRE(done.size() == 8);
    for (int lane = 0; lane < 8; ++lane) CHECK(done[lane] == done[3] + (lane == 3 ? 0 : 1));
  }
}

}  // namespace lanewise
