// `lanewise run` from outside: what it leaves, how it ends, what it says meanwhile.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Every sample that a stream produced is told of once.
void check_accounts(const nlohmann::json& report) {
  for (const auto& [stream, account] : report.at("samples").items()) {
    CAPTURE(stream);
    CHECK(account.at("produced").get<int>() == account.at("trained").get<int>() + account.at("fillers").get<int>() +
                                                   account.at("absorbed").get<int>() + account.at("left").get<int>());
  }
}

}  // namespace

TEST_CASE("run: leaves a manifest, metrics, timings, a report, a graph and weights that belong together") {
  const TempDir dir;
  const Ran ran = run_in(dir, "out", {"configs/minimal.json", "--set", "run.steps=25"});
  INFO(ran.finished.err);
  REQUIRE(ran.finished.exit == 0);
  const std::string out = dir.path("out");
  CHECK(ran.report.at("exit") == 0);
  CHECK(ran.report.at("steps") == 25);
  check_accounts(ran.report);
  const std::vector<std::string> metrics = lines_of(read_text(out + "/metrics.jsonl"));
  REQUIRE(metrics.size() == 25);
  CHECK(nlohmann::json::parse(metrics.front()).at("loss") == ran.report.at("loss").at("first"));
  CHECK(nlohmann::json::parse(metrics.back()).at("loss") == ran.report.at("loss").at("last"));
  CHECK(nlohmann::json::parse(metrics.back()).at("step") == 25);
  CHECK(lines_of(read_text(out + "/timings.jsonl")).size() == 25);
  const nlohmann::json manifest = read_json(out + "/manifest.json");
  CHECK(manifest.at("overrides") == nlohmann::json({"--set run.steps=25"}));
  CHECK(manifest.at("digest") == ran.report.at("digest"));
  CHECK(read_text(out + "/graph.dot").starts_with("digraph"));
  CHECK(fs::file_size(out + "/weights.safetensors") > 100);
  for (const auto& node : ran.report.at("nodes")) {
    const double sum =
        node.at("busy").get<double>() + node.at("starved").get<double>() + node.at("blocked").get<double>();
    CHECK(sum == doctest::Approx(node.at("fired") == 0 ? 0 : 1));
  }
  for (const auto& edge : ran.report.at("edges"))
    CHECK(edge.at("deepest").get<int>() <= edge.at("capacity").get<int>());
  CHECK(contains(ran.finished.out, "results in " + out));
}

TEST_CASE("run: with --json the report is all that standard output holds") {
  const TempDir dir;
  const Ran ran = run_in(dir, "out", {"configs/minimal.json", "--set", "run.steps=5", "--json"});
  CHECK(ran.finished.exit == 0);
  CHECK(nlohmann::json::parse(ran.finished.out) == ran.report);
}

TEST_CASE("run: the manifest's pipeline is a pipeline file that runs the same again") {
  const TempDir dir;
  const Ran first = run_in(dir, "first", {"configs/minimal.json", "--set", "run.steps=10", "--set", "gen.noise=0.3"});
  REQUIRE(first.finished.exit == 0);
  const std::string file = dir.write("again.json", read_json(dir.path("first/manifest.json")).at("pipeline").dump());
  const Ran second = run_in(dir, "second", {file});
  INFO(second.finished.err);
  REQUIRE(second.finished.exit == 0);
  CHECK(second.report.at("weights_sha256") == first.report.at("weights_sha256"));
  CHECK(read_text(dir.path("first/metrics.jsonl")) == read_text(dir.path("second/metrics.jsonl")));
}

TEST_CASE(
    "run: a directory that holds a run is refused and left as it is; one that cannot be made is refused by name") {
  const TempDir dir;
  const std::vector<std::string> arguments = {"configs/minimal.json", "--set", "run.steps=3"};
  REQUIRE(run_in(dir, "out", arguments).finished.exit == 0);
  const std::string before = read_text(dir.path("out/report.json"));
  const Finished again = run_in(dir, "out", arguments).finished;
  CHECK(again.exit == 2);
  CHECK(again.err == fmt::format("error: {} already holds a run; name another directory with --out, or remove it\n",
                                 dir.path("out")));
  CHECK(read_text(dir.path("out/report.json")) == before);
  dir.write("file", "");
  CHECK(run_in(dir, "file", arguments).finished.exit == 2);
  CHECK(run_in(dir, "file/below", arguments).finished.exit == 2);
}

TEST_CASE("run: without --out each run gets a new directory, named by the pipeline and the time") {
  const TempDir dir;
  std::string text = read_text("configs/minimal.json");
  const auto pipeline = nlohmann::json::parse(text, nullptr, true, /*ignore_comments=*/true);
  text = replaced(text, fmt::format("\"{}\"", pipeline.at("name").get<std::string>()), "\"odd name\"");
  const std::string file = dir.write("odd.json", text);
  for (int i = 0; i < 3; ++i) {
    const Finished finished =
        lanewise_command({"run", file, "--set", "run.steps=2", "--quiet"}, {.directory = dir.path()});
    INFO(finished.err);
    CHECK(finished.exit == 0);
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path("runs"))) {
    names.push_back(entry.path().filename().string());
    CHECK(names.back().starts_with("odd_name-20"));
    CHECK(fs::exists(entry.path() / "report.json"));
  }
  CHECK(names.size() == 3);
}

TEST_CASE("run: SIGINT, SIGTERM and SIGHUP finish the round, leave a complete report and exit 11") {
  for (const auto& [number, name] : {std::pair{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}) {
    CAPTURE(name);
    const TempDir dir;
    const std::string out = dir.path("out");
    Process process(lanewise_argv({"run", "configs/minimal.json", "--set", "run.steps=1000000000", "--out", out}));
    REQUIRE(process.wait_for_file(out + "/metrics.jsonl"));
    process.send(number);
    const Finished finished = process.wait();
    CHECK(finished.exit == 11);
    CHECK(contains(finished.err, std::string("error: stopped by ") + name));
    const nlohmann::json report = read_json(out + "/report.json");
    CHECK(report.at("exit") == 11);
    CHECK(report.at("steps").get<std::size_t>() == lines_of(read_text(out + "/metrics.jsonl")).size());
    check_accounts(report);
    CHECK(fs::exists(out + "/weights.safetensors"));
  }
}

TEST_CASE("run: a second signal stops at once, even when a round cannot end") {
  const TempDir dir;
  const std::string out = dir.path("out");
  const std::string file =
      dir.write("hold.json", faulty_pipeline(R"({ "at": 3, "kind": "hold" })", R"({ "steps": 50 })"));
  Process process(lanewise_argv({"run", file, "--out", out}));
  REQUIRE(process.wait_for_file(out + "/manifest.json"));
  // The first is remembered once the run has begun; each one after it ends the process.
  process.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // two that come together are one to the kernel
  process.send(SIGINT);
  CHECK(process.wait().exit == 11);
}

TEST_CASE("run: an error, a stall, a number that is none, a lost sample and an early end each end as what they are") {
  struct Case {
    std::string fault;
    int exit;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {R"({ "at": 5, "kind": "throw" })", 70, {"fault1", "sample 5"}},
      {R"({ "at": 5, "kind": "stall" })", 7, {"pair", "fault1"}},
      {R"({ "at": 5, "kind": "nan" })", 10, {"lane", "gen1", "seq 5"}},
      {R"({ "at": 5, "kind": "swallow" })", 70, {"gen1"}},
      {R"({ "at": 5, "kind": "end" })", 0, {"gen1", "5 samples"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.fault);
    const TempDir dir;
    const Ran ran = run_in(dir, "out", {dir.write("faulty.json", faulty_pipeline(c.fault, R"({ "steps": 50 })"))});
    CHECK(ran.finished.exit == c.exit);
    REQUIRE(ran.report.is_object());
    CHECK(ran.report.at("exit") == c.exit);
    const std::string reason = ran.report.at("reason");
    for (const std::string& part : c.says) CHECK_MESSAGE(contains(reason, part), reason);
    if (c.exit != 0) CHECK(contains(ran.finished.err, "error: "));
    // An error stops rounds that are still under way; everything else lets them come to their end.
    const std::size_t steps = ran.report.at("steps");
    CHECK((c.exit == 70 ? steps <= 5 : steps == 5));
    CHECK(lines_of(read_text(dir.path("out/metrics.jsonl"))).size() == steps);
  }
}

TEST_CASE("run: a disk that is full ends it with the file and the reason, not with a crash") {
  const TempDir dir;
  const std::vector<std::string> argv =
      lanewise_argv({"run", "configs/minimal.json", "--set", "run.steps=100000", "--out", dir.path("out")});
  std::string command = "ulimit -f 8; exec";
  for (const std::string& argument : argv) command += " '" + argument + "'";
  const Finished finished = run_program({"/bin/bash", "-c", command});
  CHECK(finished.exit == 6);
  CHECK(contains(finished.err, "File too large"));
  CHECK(contains(finished.err, dir.path("out")));
}

TEST_CASE("run: a run directory that is moved away ends it with the file and the reason") {
  const TempDir dir;
  Process run(lanewise_argv({"run", "configs/sines16.json", "--set", "run.steps=1000000", "--out", dir.path("out")}));
  REQUIRE(run.wait_for_file(dir.path("out/metrics.jsonl")));
  std::filesystem::rename(dir.path("out"), dir.path("moved"));
  const Finished finished = run.wait();
  INFO(finished.err);
  CHECK(finished.exit == 6);
  CHECK(contains(finished.err, "error: cannot "));
  CHECK(contains(finished.err, dir.path("out") + "/"));
}

TEST_CASE("run: progress in a file has neither control characters nor more than a line a second") {
  const TempDir dir;
  const Ran ran =
      run_in(dir, "out", {"configs/minimal.json", "--set", "run.steps=1000000000", "--set", "run.minutes=0.12"});
  CHECK(ran.finished.exit == 0);
  const double seconds = ran.report.at("seconds").at("all");
  const std::string text = ran.finished.err + ran.finished.out;
  for (const char c : text)
    CHECK_MESSAGE((c == '\n' || static_cast<unsigned char>(c) >= 0x20), "control character " << int{c});
  CHECK(contains(ran.finished.err, "step "));
  CHECK(static_cast<double>(lines_of(ran.finished.err).size()) <= seconds + 2);
}

TEST_CASE("run: progress on a terminal is one line that is rewritten, and --quiet says nothing") {
  const TempDir dir;
  const auto command = [&](const std::string& out, const std::string& more) {
    std::string text;
    for (const std::string& a : lanewise_argv({"run", "configs/minimal.json", "--set", "run.steps=1000000000", "--set",
                                               "run.minutes=0.02", "--out", dir.path(out)})) {
      text += "'" + a + "' ";
    }
    return std::vector<std::string>{"/usr/bin/script", "-qec", text + more + " >/dev/null", "/dev/null"};
  };
  const Finished loud = run_program(command("loud", "")), quiet = run_program(command("quiet", "--quiet"));
  CHECK(loud.exit == 0);
  CHECK(contains(loud.out, "\r\x1b[Kstep "));
  CHECK(quiet.exit == 0);
  CHECK(quiet.out == "");
}

TEST_CASE("run: a GPU is refused with what to write instead, and nothing is left behind") {
  const TempDir dir;
  const Ran ran = run_in(dir, "out", {"configs/gpu8.json"});
  CHECK(ran.finished.exit == 9);
  CHECK(ran.finished.err ==
        "error: lane0 is to compute on cuda:0, and no GPU is here; on virtual devices of the host it runs with --set "
        "lane.device=cpu:*\n");
  CHECK(ran.finished.out == "");
  CHECK_FALSE(fs::exists(dir.path("out")));
  CHECK(lanewise_command({"check", "configs/gpu8.json"}).exit == 0);
  CHECK(contains(lanewise_command({"graph", "configs/gpu8.json", "--format", "dot"}).out, "cuda:7"));
  const Ran virtual_ones =
      run_in(dir, "virtual", {"configs/gpu8.json", "--set", "lane.device=cpu:*", "--set", "run.steps=20"});
  CHECK(virtual_ones.finished.exit == 0);
}

}  // namespace lanewise
