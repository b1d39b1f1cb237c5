// However one of several processes fails, is told to stop, does not come or is gone: all end, with one exit code and
// the reason.
#include "tests/product/processes.h"

#include <regex>

namespace lanewise {

TEST_CASE(
    "processes: a loss that is no number in one of them is skipped by all, or ends all with the rows it came from") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  Texts sets = {"fault5.kind=nan", "fault5.at=12"};
  check_ended(Group(2, run_arguments(file, dir.path("stop"), sets)).wait(), 10, {"step 7"});
  CHECK(steps_in(dir.path("stop")) == 6);
  sets.push_back("run.accumulate=1");
  check_ended(Group(2, run_arguments(file, dir.path("one"), sets)).wait(), 10, {"step 13", "lane2", "gen5", "seq 12"});
  CHECK(read_json(dir.path("one/report.json")).at("exit") == 10);
  sets.push_back("run.non_finite=skip");
  const std::string whole = whole_run(file, dir.path("whole"), sets);
  check_done(Group(2, run_arguments(file, dir.path("skip"), sets)).wait());
  check_same(dir.path("skip"), whole);
}

TEST_CASE("processes: an error of one ends all with its exit code and its reason") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Texts thrown = {"fault5.kind=throw", "fault5.at=12"};
  check_ended(Group(2, run_arguments(file, dir.path("thrown"), thrown)).wait(), 70,
              {"rank 1", "fault5", "thrown on purpose at sample 12"});
  const std::string reason = read_json(dir.path("thrown/report.json")).at("reason");
  CHECK(contains(reason, "thrown on purpose at sample 12"));

  fs::create_directory(dir.path("here"));
  fs::create_directory(dir.path("there"));
  dir.write("here/s.csv", "x\n1\n2\n3\n4\n5\n6\n7\n8\n");
  const Texts swap = {"--swap", R"(gen={"type":"csv","params":{"path":"s.csv","features":["x"],"target":["x"]}})",
                      "--peer-timeout", "3"};
  Group group(2);
  group.start(0, run_arguments(file, dir.path("missing"), {}, swap), {}, dir.path("here"));
  group.start(1, run_arguments(file, dir.path("missing"), {}, swap), {}, dir.path("there"));
  check_ended(group.wait(), 4, {"rank 1", "cannot read", "s.csv"});
  CHECK(steps_in(dir.path("missing")) == 0);

  check_ended(Group(2, run_arguments(file, "/proc/nothing")).wait(), 2, {"/proc/nothing", "cannot be made", "--out"});
}

TEST_CASE(
    "processes: TERM to one stops all after the same step, and another number of them goes on as if nothing had been") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  for (const int told : {0, 1}) {
    CAPTURE(told);
    const std::string run = dir.path(fmt::format("run{}", told));
    // The lines of the first steps are there with the first checkpoint; then a stream rests, so that there is time.
    const Texts rest = {"fault4.kind=sleep", "fault4.at=12", "fault4.seconds=1"};
    Group group(2, run_arguments(file, run, rest));
    REQUIRE(group[0].wait_for_file(run + "/metrics.jsonl"));
    group[told].send(SIGTERM);
    const std::vector<Finished> all = group.wait();
    const int steps = read_json(run + "/report.json").at("steps");
    check_ended(all, 11, {"SIGTERM", fmt::format("after step {}", steps)});
    CHECK(steps_in(run) == static_cast<std::size_t>(steps));
    CHECK(steps < 40);
    CHECK(fs::exists(fmt::format("{}/checkpoints/step-{:012}/manifest.json", run, steps)));

    const Texts resume = {"resume", run, "--quiet"};
    if (told == 0) {
      check_done(Group(3, resume).wait());
    } else {
      check_done({lanewise_command(resume)});
    }
    check_same(run, whole);
  }
}

TEST_CASE("processes: TERM to one breaks off what the others do by themselves, and what they wait for") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  // An evaluation that would take a minute, all of it in the second process; the first has done its part.
  Group group(2, run_arguments(file, dir.path("run"),
                               {"evaluate.every=3", "fault6.kind=sleep", "fault6.at=7", "fault6.seconds=60"}));
  REQUIRE(group[0].wait_for_file(dir.path("run/metrics.jsonl")));
  const auto told = std::chrono::steady_clock::now();
  group[0].send(SIGTERM);
  check_ended(group.wait(), 11, {"stopped"});
  CHECK(std::chrono::steady_clock::now() - told < std::chrono::seconds(20));

  Group alone(2);
  alone.start(1, run_arguments(file, dir.path("alone")));
  REQUIRE(alone[0].wait_to_catch(SIGHUP));  // with SIGTERM, which the test's own library catches as well
  alone[0].send(SIGTERM);
  check_ended(alone.wait(), 11, {"rank 1", "stopped by a signal before the processes met"});
}

TEST_CASE("processes: a disk that is full in the first ends all with the file and the reason, to the very end") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::map<std::string, Texts> variants = {
      {"metrics.jsonl", {"run.steps=100000", "run.on_end=restart", "run.passes=100000"}},
      {"weights.safetensors", {"models.net.hidden=40", "run.checkpoint.on_error=continue", "run.metrics.every=1000"}},
  };
  for (const auto& [name, sets] : variants) {
    CAPTURE(name);
    Group group(2);
    const Texts arguments = run_arguments(file, dir.path(name), sets);
    group.start(0, arguments, {}, "", {"/bin/bash", "-c", "ulimit -f 24; exec \"$@\"", "bash"});
    group.start(1, arguments);
    check_ended(group.wait(), 6, {name, "File too large"});
  }
}

TEST_CASE("processes: one that is killed or stands still is named by the others, with its lanes and the last round") {
  for (const auto& [number, name] : {std::pair{SIGKILL, "SIGKILL"}, {SIGSTOP, "SIGSTOP"}}) {
    CAPTURE(name);
    const TempDir dir;
    const std::string file = dir.write("p.json", kPipeline);
    Group group(3, run_arguments(file, dir.path("run"), kEndless, kShortly));
    REQUIRE(group[0].wait_for_file(dir.path("run/metrics.jsonl")));
    group[2].send(number);
    const std::vector<Finished> others = {group[0].wait(), group[1].wait()};
    group[2].send(SIGKILL);
    check_ended(others, 8, {"rank 2", "lane2", "lane3"});
    for (const Finished& other : others) CHECK(std::regex_search(other.err, std::regex("round [0-9]+")));
    CHECK(read_json(dir.path("run/report.json")).at("exit") == 8);
  }
}

TEST_CASE("processes: one that does not come is named by those that wait for it") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const auto waiting = [&](int size, const std::vector<int>& ranks) {
    auto group = std::make_unique<Group>(size);
    const std::string out = dir.path(fmt::format("run{}{}", size, ranks[0]));
    for (const int rank : ranks) group->start(rank, run_arguments(file, out, {}, kShortly));
    return group;
  };
  const auto no_first = waiting(2, {1}), no_second = waiting(2, {0}), no_third = waiting(3, {0, 1});
  check_ended(no_first->wait(), 8, {"rank 0"});
  check_ended(no_second->wait(), 8, {"rank 1"});
  check_ended(no_third->wait(), 8, {"rank 2"});
}

TEST_CASE("processes: a rank that is there twice is refused") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  for (const auto& [size, ranks] : {std::pair{3, std::vector{0, 1, 1}}, {2, {0, 0}}}) {
    CAPTURE(size);
    Group group(size);
    const std::string out = dir.path(fmt::format("run{}", size));
    for (const int rank : ranks) group.start(rank, run_arguments(file, out, {}, kShortly));
    const std::vector<Finished> all = group.wait();
    check_ended(all, 8, {"error: "});
    if (size == 3) CHECK(contains(replaced(all[1].err + all[2].err, "RANK", "rank"), "rank 1"));
    CHECK(steps_in(out) == 0);
  }
}

TEST_CASE("processes: those that were not started alike are refused with both values, before the first step") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::vector<std::pair<Texts, Texts>> cases = {
      {{"opt.lr=0.0125", "opt.lr=0.0375"}, {"0.0125", "0.0375"}},
      {{"run.reduction=fast", "run.reduction=deterministic"}, {"fast", "deterministic"}},
  };
  for (const auto& [sets, says] : cases) {
    CAPTURE(sets[0]);
    const std::string out = dir.path(sets[0]);
    Group group(2);
    for (const int rank : {0, 1}) group.start(rank, run_arguments(file, out, {sets[rank]}, kShortly));
    check_ended(group.wait(), 8, says);
    CHECK(steps_in(out) == 0);
  }
  Group group(2);
  const Texts arguments = run_arguments(file, dir.path("sizes"), {}, kShortly);
  group.start(0, arguments);
  group.start(1, arguments, {{"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "3"}});
  check_ended(group.wait(), 8, {});
  CHECK(steps_in(dir.path("sizes")) == 0);

  // One takes the others to be on its host, and they do not.
  Group hosts(2);
  const Texts unlike = run_arguments(file, dir.path("hosts"), {}, kShortly);
  hosts.start(0, unlike);
  hosts.start(1, unlike, {{"LOCAL_WORLD_SIZE", "1"}});
  check_ended(hosts.wait(), 8, {"one_host: true -> false"});

  // A processor with other instructions would step the weights to other bits.
  Group mixed(2);
  const Texts alike = run_arguments(file, dir.path("mixed"), {}, kShortly);
  mixed.start(0, alike);
  mixed.start(1, alike, {{"ATEN_CPU_CAPABILITY", "default"}});
  check_ended(mixed.wait(), 8, {"processor: ", "DEFAULT"});

  // The same path, but other weights behind it.
  for (const char* const host : {"here", "there"}) {
    fs::create_directory(dir.path(host));
    whole_run(file, dir.path(fmt::format("{}/run", host)),
              {"run.steps=2", fmt::format("run.seed={}", std::strlen(host))});
    fs::rename(dir.path(fmt::format("{}/run/weights.safetensors", host)), dir.path(fmt::format("{}/w", host)));
  }
  Group weights(2);
  for (const int rank : {0, 1}) {
    weights.start(rank, run_arguments(file, dir.path("weights"), {"models.net.init=w"}, kShortly), {},
                  dir.path(rank == 0 ? "here" : "there"));
  }
  check_ended(weights.wait(), 8, {"begin with different weights", "rank 1", "init"});
  CHECK(steps_in(dir.path("weights")) == 0);
}

TEST_CASE("processes: a variable of the environment that makes no sense is refused by name and value") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"RANK", "two"},          {"RANK", "-1"},      {"RANK", "2"},       {"RANK", ""},
      {"WORLD_SIZE", "many"},   {"WORLD_SIZE", "0"}, {"MASTER_PORT", ""}, {"MASTER_PORT", "http"},
      {"MASTER_PORT", "70000"}, {"MASTER_ADDR", ""},
  };
  Group group(2);
  for (const auto& [name, value] : cases) group.start(0, run_arguments(file, dir.path("run")), {{name, value}});
  const std::vector<Finished> all = group.wait();
  for (std::size_t i = 0; i < cases.size(); ++i) check_ended({all[i]}, 2, {cases[i].first, cases[i].second});
  CHECK_FALSE(fs::exists(dir.path("run")));
}

TEST_CASE("processes: a port that something else listens on, and a host that nobody knows, are named by all") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Texts arguments = run_arguments(file, dir.path("run"), {}, kShortly);
  const MutePort port;
  Group taken(2, arguments, {{"MASTER_PORT", port.text()}}),
      agent(2, arguments, {{"MASTER_PORT", port.text()}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
      no_host(2, arguments, {{"MASTER_ADDR", "no-such-host.invalid"}}),
      no_interface(2, arguments, {{"LOCAL_WORLD_SIZE", "1"}, {"GLOO_SOCKET_IFNAME", "nope0"}});
  check_ended(taken.wait(), 8, {port.text()});
  check_ended(agent.wait(), 8, {port.text()});
  check_ended(no_host.wait(), 8, {"no-such-host.invalid"});
  check_ended(no_interface.wait(), 8, {"GLOO_SOCKET_IFNAME", "nope0"});
  CHECK(steps_in(dir.path("run")) == 0);
}

TEST_CASE("processes: more of them than lanes are refused, and leave nothing behind") {
  const TempDir dir;
  check_ended(Group(2, run_arguments("configs/minimal.json", dir.path("run"))).wait(), 2, {"2 processes", "1 lane"});
  CHECK_FALSE(fs::exists(dir.path("run")));
}

}  // namespace lanewise
