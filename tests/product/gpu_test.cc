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
