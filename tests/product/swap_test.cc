// Swapping nodes from the command line.
#include <doctest/doctest.h>

#include <map>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {

TEST_CASE("swap: another source with another sample width runs without touching anything else") {
  const TempDir dir;
  const Ran sines = run_in(dir, "sines", {"configs/sines16.json", "--set", "run.steps=5"});
  const Ran lorenz =
      run_in(dir, "lorenz", {"configs/sines16.json", "--set", "run.steps=5", "--swap", R"(gen={"type":"lorenz"})"});
  INFO(lorenz.finished.err);
  REQUIRE(sines.finished.exit == 0);
  REQUIRE(lorenz.finished.exit == 0);
  CHECK(lorenz.report.at("steps") == 5);
  CHECK(lorenz.report.at("samples").size() == 16);
  CHECK(lorenz.report.at("weights_sha256") != sines.report.at("weights_sha256"));
  const auto widths = [](const std::string& swap) {
    std::vector<std::string> arguments = {"check", "configs/sines16.json", "--json"};
    if (!swap.empty()) arguments.insert(arguments.end(), {"--swap", swap});
    return nlohmann::json::parse(lanewise_command(arguments).out)
        .at("train")
        .at("edges")
        .at(0)
        .at("carries")
        .get<std::string>();
  };
  CHECK(widths("") != widths(R"(gen={"type":"lorenz"})"));
}

TEST_CASE("swap: a loss and a model's parameters are set by name, and one stream's alone") {
  const TempDir dir;
  const Ran ran = run_in(dir, "out",
                         {"configs/sines16.json", "--set", "run.steps=3", "--set", "lane.loss=huber", "--set",
                          "models.net.activation=tanh", "--set", "gen3.period=9"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  const nlohmann::json pipeline = read_json(dir.path("out/manifest.json")).at("pipeline");
  CHECK(pipeline.at("models").at("net").at("activation") == "tanh");
  const auto values_of = [&](const std::string& type, const std::string& param) {
    std::map<std::string, nlohmann::json> values;
    for (const auto& node : pipeline.at("nodes")) {
      if (node.at("type") == type) values[node.at("id")] = node.at("params").at(param);
    }
    return values;
  };
  const auto losses = values_of("compute", "loss"), periods = values_of("sine", "period");
  CHECK(losses.size() == 8);
  for (const auto& [lane, loss] : losses) CHECK_MESSAGE(loss == "huber", lane);
  CHECK(periods.size() == 16);
  for (const auto& [source, period] : periods) CHECK_MESSAGE((period == 9) == (source == "gen3"), source);
}

TEST_CASE("swap: an impossible one is refused by check, and the message names the edge") {
  for (const auto& [swap, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {R"(gen={"type":"optimizer"})", {"pair \"pair\"", "optimizer \"gen\""}},
           {R"(lane={"type":"window"})", {"window \"lane\"", "pair \"pair\""}},
           {R"(reduce={"type":"normalize"})", {"normalize \"reduce\"", "compute \"lane\""}}}) {
    CAPTURE(swap);
    const Finished checked = lanewise_command({"check", "configs/sines16.json", "--swap", swap});
    CHECK(checked.exit == 3);
    for (const std::string& part : parts) CHECK_MESSAGE(checked.err.find(part) != std::string::npos, checked.err);
  }
}

}  // namespace lanewise
