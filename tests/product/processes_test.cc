// One pipeline in several processes: what they leave is what one process leaves, and however one of them fails, is told
// to stop, does not come or is gone, all end, with one exit code and the reason.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <regex>

#include "tests/ports.h"
#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// Eight streams of different lengths in four lanes, with noise, normalisation, dropout and carried state. The streams
// of lane0 end first. Evaluations are shorter than any fault's place in a stream.
const char* const kPipeline = R"({
  "name": "group",
  "models": { "net": { "type": "gru", "hidden": 6, "layers": 2, "dropout": 0.2 } },
  "nodes": [
    { "id": "gen", "repeat": 8, "type": "sine", "each": { "period": 7, "samples": [28, 34, 40, 46, 80, 62, 72, 58] },
      "params": { "features": 3, "noise": 0.1 } },
    { "id": "norm", "repeat": 8, "type": "normalize", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "fault", "repeat": 8, "type": "fault", "in": [ { "from": "norm", "take": 1 } ] },
    { "id": "pair", "repeat": 4, "type": "pair", "in": [ { "from": "fault", "take": 2, "capacity": 4 } ] },
    { "id": "lane", "repeat": 4, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "cpu:*", "params": { "model": "net" } },
    { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "lr": 0.01 } } ],
  "run": { "passes": 1, "on_end": "mask", "seed": 5, "state": "carry", "accumulate": 2, "checkpoint": { "every": 3 } },
  "evaluate": { "every": 10, "set": { "gen.samples": 9 } } })";

const Texts kEndless = {"run.passes=100000", "run.on_end=restart"};
const Texts kShortly = {"--peer-timeout", "3"};  // where a test waits for it

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A port of this machine that something else than a store listens on: it takes calls, and never answers.
class MutePort {
 public:
  MutePort() : socket_(bound_socket(port_)) { REQUIRE(listen(socket_, 16) == 0); }
  ~MutePort() { close(socket_); }
  MutePort(const MutePort&) = delete;
  MutePort& operator=(const MutePort&) = delete;
  std::string text() const { return std::to_string(port_); }

 private:
  std::uint16_t port_ = 0;
  int socket_;
};

Texts run_arguments(const std::string& file, const std::string& out, const Texts& sets = {}, const Texts& more = {}) {
  Texts arguments = {"run", file, "--out", out, "--quiet"};
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The processes of one group on this machine, each started as torchrun would.
class Group {
 public:
  explicit Group(int size) : size_(size) {}
  // With the same arguments in every process.
  Group(int size, const Texts& arguments, const Variables& other = {}) : size_(size) {
    for (int rank = 0; rank < size; ++rank) start(rank, arguments, other);
  }

  // `other` changes what torchrun would put into the environment; `through` is a command that starts the process.
  void start(int rank, const Texts& arguments, const Variables& other = {}, const std::string& directory = "",
             Texts through = {}) {
    Variables variables = other;  // insert() keeps what is there
    variables.insert({{"RANK", std::to_string(rank)},
                      {"LOCAL_RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(size_)},
                      {"LOCAL_WORLD_SIZE", std::to_string(size_)},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", port_}});
    Surroundings around{.directory = directory};
    for (const auto& [name, value] : variables) around.environment.push_back(name + "=" + value);
    const Texts argv = lanewise_argv(arguments);
    through.insert(through.end(), argv.begin(), argv.end());
    processes_.push_back(std::make_unique<Process>(through, around));
  }

  Process& operator[](int i) { return *processes_[i]; }

  // Of every process, in the order in which they were started.
  std::vector<Finished> wait() {
    std::vector<Finished> all;
    for (const auto& process : processes_) {
      all.push_back(process->wait());
      REQUIRE_MESSAGE(!all.back().timed_out, "process " << all.size() - 1 << " does not end; it said\n"
                                                        << all.back().err);
    }
    return all;
  }

 private:
  int size_;
  std::string port_ = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> processes_;
};

// All is well, and only the first process says so.
void check_done(const std::vector<Finished>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    INFO(all[i].err);
    CHECK(all[i].exit == 0);
    CHECK(contains(all[i].out, "results in ") == (i == 0));
    if (i > 0) CHECK(all[i].out + all[i].err == "");
  }
}

// Every process ends with this exit code, and says all of this.
void check_ended(const std::vector<Finished>& all, int exit, const Texts& says) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    INFO(all[i].err);
    CHECK(all[i].exit == exit);
    CHECK(all[i].err != "");
    for (const std::string& part : says) CHECK_MESSAGE(contains(all[i].err, part), part);
  }
}

// Two runs left the same, byte for byte.
void check_same(const std::string& run, const std::string& whole) {
  for (const char* const name : {"metrics.jsonl", "evaluations.jsonl", "weights.safetensors"}) {
    CAPTURE(name);
    CHECK((read_text(run + "/" + name) == read_text(whole + "/" + name)));
  }
  const nlohmann::json report = read_json(run + "/report.json"), expected = read_json(whole + "/report.json");
  for (const char* const key : {"exit", "steps", "loss", "evaluation", "weights_sha256"}) {
    CAPTURE(key);
    CHECK(report.at(key) == expected.at(key));
  }
}

// What one process leaves, to compare with.
std::string whole_run(const std::string& file, const std::string& out, const Texts& sets = {}) {
  const Finished finished = lanewise_command(run_arguments(file, out, sets));
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  return out;
}

std::size_t steps_in(const std::string& run) {
  return fs::exists(run + "/metrics.jsonl") ? lines_of(read_text(run + "/metrics.jsonl")).size() : 0;
}

std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const std::string& line : lines_of(read_text(run + "/metrics.jsonl")))
    losses.push_back(nlohmann::json::parse(line).at("loss"));
  return losses;
}

std::vector<double> weights_of(const std::string& run) {
  const std::string bytes = read_text(run + "/weights.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t begin = sizeof header + header;
  std::vector<float> values((bytes.size() - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

// The largest difference, as a share of the largest value.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

// Two hosts with a cable between them: network namespaces of this one, where that is allowed.
class TwoHosts {
 public:
  TwoHosts() {
    const auto ip = [&](const std::string& arguments) { made_ = made_ && run("ip " + arguments); };
    for (const std::string& name : names_) ip("netns add " + name);
    ip("link add veth0 netns " + names_[0] + " type veth peer name veth0 netns " + names_[1]);
    for (int host = 0; host < 2; ++host) {
      const std::string inside = "-n " + names_[host] + " ";
      ip(inside + "addr add " + address(host) + "/24 dev veth0");
      ip(inside + "link set veth0 up");
      ip(inside + "link set lo up");
    }
  }
  ~TwoHosts() {
    for (const std::string& name : names_) run("ip netns del " + name);
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool made() const { return made_; }
  std::string address(int host) const { return "10.77.0." + std::to_string(host + 1); }
  Texts on(int host) const { return {"/usr/bin/env", "ip", "netns", "exec", names_[host]}; }
  void pull_the_cable() const { REQUIRE(run("ip -n " + names_[0] + " link set veth0 down")); }

 private:
  static bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

  const std::string names_[2] = {"lanewise-a" + std::to_string(getpid()), "lanewise-b" + std::to_string(getpid())};
  bool made_ = true;
};

// `logs`: a directory for torchrun's own.
Texts torchrun_argv(const std::string& logs, const Texts& options, const Texts& command) {
  Texts argv = {fs::absolute(".venv/bin/torchrun").string(), "--standalone", "--no-python", "--log-dir", logs};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

}  // namespace

TEST_CASE("processes: torchrun with 1, 2 and 4 of them leaves what the command alone leaves, byte for byte") {
  for (const char* const config : {"configs/sines16.json", "configs/flights16.json"}) {
    CAPTURE(config);
    const TempDir dir;
    const Texts sets = {"run.steps=30", "evaluate.every=20"};
    std::map<std::string, std::unique_ptr<Process>> runs;  // by the number of processes
    for (const char* const n : {"1", "2", "4"}) {
      const Texts command = lanewise_argv(run_arguments(config, dir.path(n), sets));
      runs[n] = std::make_unique<Process>(torchrun_argv(dir.path(), {"--nproc-per-node", n}, command));
    }
    const std::string whole = whole_run(config, dir.path("whole"), sets);
    for (const auto& [n, run] : runs) {
      CAPTURE(n);
      const Finished finished = run->wait();
      INFO(finished.err);
      REQUIRE(finished.exit == 0);
      CHECK(contains(finished.out, "results in " + dir.path(n)));
      CHECK(finished.out.find("results in ") == finished.out.rfind("results in "));  // only one says it
      check_same(dir.path(n), whole);
    }
  }
}

TEST_CASE("processes: three share eight lanes unevenly and leave what one leaves") {
  const TempDir dir;
  const Texts sets = {"run.steps=20"};
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), sets);
  check_done(Group(3, run_arguments("configs/sines16.json", dir.path("run"), sets)).wait());
  check_same(dir.path("run"), whole);
  CHECK(read_json(dir.path("run/report.json")).at("processes").at("exchange") == "shared memory");

  // As on three hosts, which share no memory; and where only one speaks, that one does so for all.
  Group apart(3);
  for (int rank = 0; rank < 3; ++rank) {
    Texts arguments = run_arguments("configs/sines16.json", dir.path("apart"), sets);
    std::erase(arguments, "--quiet");
    apart.start(rank, arguments, {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  }
  check_done(apart.wait());
  check_same(dir.path("apart"), whole);
  CHECK(read_json(dir.path("apart/report.json")).at("processes").at("exchange") == "gloo");
}

TEST_CASE(
    "processes: carried state, dropout, accumulation, evaluations and every end of a stream are those of one process") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::map<std::string, Texts> variants = {
      {"mask", {"models.net.type=lstm"}},
      {"restart", {"run.on_end=restart", "run.passes=2"}},
      {"first", {"run.on_end=first", "run.tbptt=2", "fault5.kind=end", "fault5.at=20"}},
  };
  for (const auto& [name, sets] : variants) {
    CAPTURE(name);
    const std::string whole = whole_run(file, dir.path(name), sets);
    Group three(3, run_arguments(file, dir.path(name + "3"), sets)),
        four(4, run_arguments(file, dir.path(name + "4"), sets));
    check_done(three.wait());
    check_done(four.wait());
    check_same(dir.path(name + "3"), whole);
    check_same(dir.path(name + "4"), whole);
  }
}

TEST_CASE(
    "processes: deterministic and fast sums differ from the reference by rounding, deterministic ones always alike") {
  const TempDir dir;
  const Texts sets = {"run.steps=20", "opt.name=sgd", "opt.lr=0.05"};
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), sets);
  for (const std::string name : {"fast", "deterministic", "deterministic again"}) {
    CAPTURE(name);
    Texts more = sets;
    more.push_back("run.reduction=" + name.substr(0, name.find(' ')));
    check_done(Group(3, run_arguments("configs/sines16.json", dir.path(name), more)).wait());
    CHECK(distance(losses_of(dir.path(name)), losses_of(whole)) <= 1e-5);
    CHECK(distance(weights_of(dir.path(name)), weights_of(whole)) <= 1e-5);
  }
  check_same(dir.path("deterministic again"), dir.path("deterministic"));
}

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

  // A step that takes longer than a source is given after a signal is finished all the same, and saved.
  Group slow(2, run_arguments(file, dir.path("slow"), {"fault4.kind=sleep", "fault4.at=12", "fault4.seconds=6"}));
  REQUIRE(slow[0].wait_for_file(dir.path("slow/metrics.jsonl")));
  slow[0].send(SIGTERM);
  check_ended(slow.wait(), 11, {"SIGTERM", "after step"});
  const int steps = read_json(dir.path("slow/report.json")).at("steps");
  CHECK(fs::exists(fmt::format("{}/checkpoints/step-{:012}/manifest.json", dir.path("slow"), steps)));

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

TEST_CASE("processes: copies of the weights that are compared are alike, whatever the lanes' own buffers hold") {
  const TempDir dir;
  for (const char* const buffers : {"local", "average"}) {
    const Texts sets = {"run.steps=6", "run.verify_every=2", "models.net.norm=batch",
                        fmt::format("run.buffers={}", buffers)};
    check_done(Group(2, run_arguments("configs/sines16.json", dir.path(buffers), sets)).wait());
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

TEST_CASE("processes: two hosts train as one, and each names the other when the cable is pulled") {
  const TwoHosts hosts;
  if (!hosts.made()) {
    MESSAGE("not run: network namespaces cannot be made here");
    return;
  }
  const TempDir dir;
  const auto start = [&](Group& group, const Texts& arguments) {
    const Variables apart = {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", hosts.address(0)}};
    for (int host = 0; host < 2; ++host) group.start(host, arguments, apart, "", hosts.on(host));
  };
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), {"run.steps=30"});
  Group together(2);
  start(together, run_arguments("configs/sines16.json", dir.path("run"), {"run.steps=30"}));
  check_done(together.wait());
  check_same(dir.path("run"), whole);

  Group apart(2);
  start(apart,
        run_arguments("configs/sines16.json", dir.path("apart"), {"run.steps=1000000"}, {"--peer-timeout", "2"}));
  REQUIRE(apart[0].wait_for_file(dir.path("apart/metrics.jsonl"), 1));
  hosts.pull_the_cable();
  const std::vector<Finished> all = apart.wait();
  for (int rank = 0; rank < 2; ++rank) {
    INFO(all[rank].err);
    CHECK(all[rank].exit == 8);
    CHECK(contains(all[rank].err, rank == 0 ? "rank 1 (lane4" : "rank 0 (lane0"));
  }
}

TEST_CASE("processes: more of them than lanes are refused, and leave nothing behind") {
  const TempDir dir;
  check_ended(Group(2, run_arguments("configs/minimal.json", dir.path("run"))).wait(), 2, {"2 processes", "1 lane"});
  CHECK_FALSE(fs::exists(dir.path("run")));
}

TEST_CASE(
    "run: with --resume-if-any the same command begins a run and goes on with it, alone and in several processes") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  const Texts arguments = run_arguments(file, dir.path("run"), {}, {"--resume-if-any"});
  const Finished killed = run_program(lanewise_argv(arguments), {.environment = {"LANEWISE_KILL_AT=renamed:3"}});
  CHECK(killed.signal == SIGKILL);
  check_done(Group(2, arguments).wait());
  CHECK(read_json(dir.path("run/report.json")).at("resumed_after") == 9);
  check_same(dir.path("run"), whole);
  check_done({lanewise_command(arguments)});  // nothing is left to do
  check_same(dir.path("run"), whole);
}

TEST_CASE(
    "processes: with --resume-if-any torchrun restarts a run in which a process was killed, and nothing shows it") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  std::string script = "[ $RANK.$TORCHELASTIC_RESTART_COUNT = 0.0 ] && export LANEWISE_KILL_AT=renamed:3; exec";
  for (const std::string& argument :
       lanewise_argv(run_arguments(file, dir.path("run"), {}, {"--resume-if-any", "--peer-timeout", "10"})))
    script += " '" + argument + "'";
  const Finished finished = run_program(
      torchrun_argv(dir.path(), {"--nproc-per-node", "2", "--max-restarts", "2"}, {"/bin/bash", "-c", script}));
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  CHECK(read_json(dir.path("run/report.json")).at("resumed_after") == 9);
  check_same(dir.path("run"), whole);
}

TEST_CASE("processes: two torchruns, as on two hosts, restart a run in which one of them lost a process") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  std::string script = "[ $RANK = 0 ] && [ ! -e " + dir.path("again") + " ] && touch " + dir.path("again") +
                       " && export LANEWISE_KILL_AT=renamed:3; exec";
  for (const std::string& argument :
       lanewise_argv(run_arguments(file, dir.path("run"), {}, {"--resume-if-any", "--peer-timeout", "10"})))
    script += " '" + argument + "'";
  const std::string endpoint = fmt::format("127.0.0.1:{}", free_port());
  std::vector<std::unique_ptr<Process>> hosts;
  for (int host = 0; host < 2; ++host) {
    Texts argv = {fs::absolute(".venv/bin/torchrun").string(),
                  "--no-python",
                  "--log-dir",
                  dir.path(),
                  "--nnodes",
                  "2",
                  "--nproc-per-node",
                  "1",
                  "--rdzv-backend",
                  "c10d",
                  "--rdzv-endpoint",
                  endpoint,
                  "--max-restarts",
                  "3",
                  "/bin/bash",
                  "-c",
                  script};
    hosts.push_back(std::make_unique<Process>(argv));
  }
  for (const auto& host : hosts) {
    const Finished finished = host->wait();
    INFO(finished.err);
    CHECK(finished.exit == 0);
  }
  check_same(dir.path("run"), whole);
}

}  // namespace lanewise
