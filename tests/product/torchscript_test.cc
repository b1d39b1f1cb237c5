// Models and losses of one's own, from outside: the configuration as it is printed, what its archive needs, and that
// nothing of it is loaded but by a run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "tests/product/pipelines.h"
#include "tests/product/processes.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

// torchscript16.json and the program that makes its archives, in a folder of their own.
std::string configuration(const TempDir& dir) {
  fs::create_directory(dir.path("models"));
  fs::copy_file("configs/models/forecaster.py", dir.path("models/forecaster.py"));
  return dir.write("torchscript16.json", read_text("configs/torchscript16.json"));
}

void make_archives(const TempDir& dir) {
  const Finished made = run_program({".venv/bin/python", dir.path("models/forecaster.py")});
  REQUIRE_MESSAGE(made.exit == 0, made.err);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("torchscript16: without its archives it says how they are made; with them it beats the last value by far") {
  const TempDir dir;
  const std::string file = configuration(dir);
  const Finished without = lanewise_command({"check", file});
  CHECK(without.exit == 4);
  CHECK_MESSAGE(has(without.err, "make it with: python " + dir.path("models/forecaster.py")), without.err);

  make_archives(dir);
  const Finished checked = lanewise_command({"check", file});
  REQUIRE_MESSAGE(checked.exit == 0, checked.err);
  CHECK(has(checked.out, "gradient: unknown until run; prediction: y [1]"));
  const Ran ran = run_in(dir, "run", {"torchscript16.json", "--quiet"}, {.directory = dir.path()});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  const nlohmann::json evaluation = ran.report.at("evaluation");
  const double mse = evaluation.at("mse"), last = evaluation.at("baselines").at("last");
  MESSAGE(fmt::format("mse {:.4f}, last value {:.4f}", mse, last));
  CHECK(mse < 0.4 * last);
  for (const auto& [stream, scores] : evaluation.at("streams").items())
    CHECK_MESSAGE(scores.at("mse") < scores.at("baselines").at("last"), stream);

  // eval and predict go by the archive that was trained, and by no other.
  const Finished again = lanewise_command({"eval", dir.path("run"), "--json"});
  INFO(again.err);
  CHECK(nlohmann::json::parse(again.out).at("mse") == evaluation.at("mse"));
  const std::string archive = dir.path("models/forecaster.pt"), bytes = read_text(archive);
  dir.write("models/forecaster.pt", bytes + "x");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", dir.path("run")}, {"resume", dir.path("run"), "--set", "run.steps=501"}}) {
    const Finished refused = lanewise_command(command);
    CHECK(refused.exit == 6);
    CHECK_MESSAGE(has(refused.err, "models.net reads " + archive + ", which was changed"), refused.err);
  }
}

TEST_CASE("torchscript: check, graph, nodes and schema load no archive, whatever is in it; run does") {
  const TempDir dir;
  const std::string file = configuration(dir);
  make_archives(dir);
  // A module that cannot be loaded without a trace: loading it fails, and whoever loads it says so.
  dir.write("models/forecaster.pt", "PK, and constants.pkl, and nothing that could be loaded");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"check", file},
                                                  {"graph", file},
                                                  {"graph", file, "--format", "dot"},
                                                  {"check", file, "--set", "run.steps=3"},
                                                  {"nodes", "compute"},
                                                  {"schema"}}) {
    const Finished finished = lanewise_command(command);
    CHECK_MESSAGE(finished.exit == 0, finished.err);
  }
  const Ran ran = run_in(dir, "run", {file, "--quiet"});
  CHECK(ran.finished.exit == 4);
  CHECK_MESSAGE(has(ran.finished.err, "lane0: model \"net\" (torchscript): " + dir.path("models/forecaster.pt") +
                                          " is damaged, or for another version of PyTorch"),
                ran.finished.err);
}

TEST_CASE("torchscript: a run in several processes is that of one, byte for byte") {
  const TempDir dir;
  const std::string file = configuration(dir);
  make_archives(dir);
  const Ran one = run_in(dir, "one", {file, "--quiet", "--set", "run.steps=40"});
  REQUIRE_MESSAGE(one.finished.exit == 0, one.finished.err);
  const std::vector<std::string> run =
      lanewise_argv({"run", file, "--quiet", "--set", "run.steps=40", "--out", dir.path("two")});
  const Finished two = run_program(torchrun_argv(dir.path("logs"), {"--nproc-per-node", "2"}, run));
  REQUIRE_MESSAGE(two.exit == 0, two.err);
  CHECK(read_json(dir.path("two/report.json")).at("weights_sha256") == one.report.at("weights_sha256"));
  CHECK(read_text(dir.path("two/metrics.jsonl")) == read_text(dir.path("one/metrics.jsonl")));

  // Each process reads a file of its own, with the same weights, and not quite the same bytes.
  for (const char* const rank : {"0", "1"}) {
    fs::create_directory(dir.path(rank));
    dir.write(std::string(rank) + "/net.pt", read_text(dir.path("models/forecaster.pt")) + rank);
  }
  const std::string command =
      fmt::format("cd {}/$RANK && exec {} run {} --quiet --set models.net.path=net.pt --set run.steps=40 --out {}",
                  dir.path(), fs::absolute(lanewise_argv({}).front()).string(), file, dir.path("apart"));
  const Finished apart =
      run_program(torchrun_argv(dir.path("logs"), {"--nproc-per-node", "2"}, {"/bin/bash", "-c", command}));
  CHECK_MESSAGE(has(apart.err, "exitcode  : 8"), apart.err);
  CHECK_MESSAGE(has(apart.err, "models.net of rank 1"), apart.err);
  CHECK_MESSAGE(has(apart.err, "differs from that of processes before it; give all of them the same file"), apart.err);
}

}  // namespace lanewise
