// The same bits whatever the threads and the placement of the weights.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

// Everything of a run that must not depend on how it was run.
std::string bits_of(const TempDir& dir, const std::string& config, const std::vector<std::string>& more) {
  static int runs = 0;
  const std::string name = fmt::format("run{}", ++runs);
  std::vector<std::string> arguments = {config, "--quiet", "--set", "run.steps=40"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran ran = run_in(dir, name, arguments);
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  const auto evaluations = dir.path(name) + "/evaluations.jsonl";
  return read_text(dir.path(name) + "/metrics.jsonl") + read_text(dir.path(name) + "/weights.safetensors") +
         ran.report.at("weights_sha256").get<std::string>() + ran.report.at("evaluation").dump() +
         (std::filesystem::exists(evaluations) ? read_text(evaluations) : "");
}

}  // namespace

TEST_CASE("exact: two runs, 1 to 8 threads, shared and per-device weights train the same model, bit for bit") {
  for (const char* config : {"configs/sines16.json", "configs/flights16.json"}) {
    CAPTURE(config);
    const TempDir dir;
    const std::string first = bits_of(dir, config, {});
    CHECK((bits_of(dir, config, {}) == first));
    for (const char* threads : {"1", "2", "4", "8"}) {
      CAPTURE(threads);
      CHECK((bits_of(dir, config, {"--set", std::string("run.threads=") + threads}) == first));
    }
    CHECK((bits_of(dir, config, {"--set", "run.weights=per_device"}) == first));
    CHECK((bits_of(dir, config, {"--set", "run.weights=per_device", "--set", "run.threads=1"}) == first));
    CHECK((bits_of(dir, config, {"--set", "run.seed=12345"}) != first));
  }
}

TEST_CASE("exact: sixteen streams on eight lanes and on one give the same losses but for rounding") {
  const TempDir dir;
  const auto losses = [&](const std::string& name, const std::string& config) {
    const Ran ran =
        run_in(dir, name, {config, "--set", "run.steps=40", "--set", "run.dtype=float64", "--set", "run.seed=3"});
    INFO(ran.finished.err);
    REQUIRE(ran.finished.exit == 0);
    std::vector<double> list;
    for (const std::string& line : lines_of(read_text(dir.path(name) + "/metrics.jsonl")))
      list.push_back(nlohmann::json::parse(line).at("loss"));
    return list;
  };
  const std::vector<double> eight = losses("eight", "configs/flights16.json"),
                            one = losses("one", "configs/one_device.json");
  REQUIRE(eight.size() == 40);
  REQUIRE(one.size() == 40);
  for (std::size_t i = 0; i < eight.size(); ++i) {
    CHECK(std::abs(eight[i] - one[i]) / std::max(std::abs(one[i]), 1e-3) <= 1e-10);
  }
}

}  // namespace lanewise
