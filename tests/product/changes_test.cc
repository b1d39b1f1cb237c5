// Pipelines that stand on others, explain-config, diff and the completion of shells, through the built command.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

std::string derived(const std::string& base, const std::string& rest) {
  return fmt::format(R"({{ "base": "{}", {} }})", base, rest);
}

}  // namespace

TEST_CASE("changes: a file with a base trains like its base with the same changes on the command line") {
  const TempDir dir;
  const std::string base = fs::absolute("configs/sines16.json").string();
  const std::string file = dir.write(
      "mine.json", derived(base, R"("set": { "run.steps": 6, "lane.loss": "huber", "gen[0..3].noise": 0.3 })"));
  const Ran mine = run_in(dir, "mine", {file});
  const Ran plain = run_in(
      dir, "plain",
      {"configs/sines16.json", "--set", "run.steps=6", "--set", "lane.loss=huber", "--set", "gen[0..3].noise=0.3"});
  INFO(mine.finished.err);
  REQUIRE(mine.finished.exit == 0);
  REQUIRE(plain.finished.exit == 0);
  CHECK(mine.report.at("weights_sha256") == plain.report.at("weights_sha256"));
  CHECK(read_json(dir.path("mine/manifest.json")).at("name") == "mine");
}

TEST_CASE("changes: a run whose base has changed or is gone goes on as it began") {
  const TempDir dir;
  const std::string base = dir.write("base.json", read_text("configs/sines16.json"));
  const std::string file = dir.write("mine.json", derived("base.json", R"("set": { "run.steps": 4 })"));
  REQUIRE(run_in(dir, "out", {file}).finished.exit == 0);
  fs::remove(base);
  const Finished evaluated = lanewise_command({"eval", dir.path("out")});
  INFO(evaluated.err);
  CHECK(evaluated.exit == 0);
  const Finished again = lanewise_command({"check", file});
  CHECK(again.exit == 3);
  CHECK(again.err.find("base.json: cannot be read (No such file or directory)") != std::string::npos);
}

TEST_CASE("changes: explain-config and diff tell what a changed file changes") {
  const TempDir dir;
  const std::string base = fs::absolute("configs/sines16.json").string();
  const std::string file = dir.write("mine.json", derived(base, R"("set": { "lane.loss": "huber" })"));
  const Finished told = lanewise_command({"explain-config", file, "lane3.loss", "--set", "lane3.loss=mse"});
  INFO(told.err);
  CHECK(told.exit == 0);
  CHECK(told.out.starts_with("lane3.loss = \"mse\"\n  default "));
  CHECK(told.out.find("mine.json:1:") != std::string::npos);
  CHECK(told.out.find("\"huber\"") < told.out.find("command line"));
  const auto json = nlohmann::json::parse(lanewise_command({"explain-config", file, "lane.loss", "--json"}).out);
  REQUIRE(json.size() == 1);
  CHECK(json[0].at("names").size() == 8);
  CHECK(json[0].at("value") == "huber");
  const Finished swapped =
      lanewise_command({"explain-config", "configs/flights16.json", "gen0.features", "--set", "norm.mode=running",
                        "--set", "run.steps=5", "--swap", R"(gen={"type":"sine"})"});
  CHECK(swapped.out.find("\"dep_delay\"") != std::string::npos);
  CHECK(swapped.out.find("(does not fit)") != std::string::npos);

  const std::vector<std::string> both = {"diff", "configs/sines16.json", file};
  CHECK(lanewise_command(both).out == "~ compute lane (compute)\n    params.loss: \"mse\" -> \"huber\"\n");
  CHECK(lanewise_command({"diff", file, "configs/sines16.json", "--set", "lane.loss=huber"}).out ==
        "the plans are the same\n");
  CHECK(lanewise_command({"diff", "configs/sines16.json", "--set", "lane.loss=huber"}).out ==
        lanewise_command(both).out);
  const auto parsed = nlohmann::json::parse(lanewise_command({"diff", both[1], both[2], "--json"}).out);
  CHECK(parsed.at("equal") == false);
  CHECK(lanewise_command({"diff", both[1], both[2], "--format", "dot"}).out.starts_with("digraph diff {"));
  CHECK(lanewise_command({"diff", both[1], both[2], "--format", "dto"}).exit == 2);
  CHECK(lanewise_command({"diff", "-"}, {.input = "{}"}).exit == 2);
}

TEST_CASE("changes: bash completes commands, options, node types, and the keys of the file named") {
  const TempDir dir;
  const auto completed = [&](const std::string& words, int index) {
    const std::string script =
        dir.write("complete.sh", fmt::format("PATH={}:$PATH\nsource <(lanewise completion bash)\nCOMP_WORDS=({})\n"
                                             "COMP_CWORD={}\n_lanewise\necho \"${{COMPREPLY[*]}}\" >{}\n",
                                             fs::absolute(std::getenv("LANEWISE")).parent_path().string(), words, index,
                                             dir.path("reply")));
    REQUIRE(std::system(("bash " + script).c_str()) == 0);
    return read_text(dir.path("reply"));
  };
  CHECK(completed("lanewise expl", 1) == "explain-config\n");
  CHECK(completed("lanewise graph --for", 2) == "--format\n");
  CHECK(completed("lanewise nodes lor", 2) == "lorenz\n");
  CHECK(completed("lanewise run configs/sines16.json --set run.ste", 4) == "run.steps=\n");
  CHECK(completed("lanewise explain-config configs/sines16.json models.net.hid", 3) == "models.net.hidden\n");
  CHECK(completed("lanewise check-node lor", 2) == "lorenz\n");
  // What a file holds is no code.
  const std::string trap = dir.path("trap");
  const std::string id = "$(touch " + trap + ")";
  const std::string file =
      dir.write("names.json", replaced(read_text("configs/minimal.json"), "\"gen\"", "\"" + id + "\""));
  CHECK(completed("lanewise run " + file + " --set \\$", 4).find("touch\\ ") != std::string::npos);
  CHECK_FALSE(fs::exists(trap));
}

}  // namespace lanewise
