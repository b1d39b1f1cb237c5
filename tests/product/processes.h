// Several processes of one pipeline, for tests of what they leave and of how they end.
#pragma once

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

#include "tests/ports.h"
#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {

namespace fs = std::filesystem;

using Texts = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// Eight streams of different lengths in four lanes, with noise, normalisation, dropout and carried state. The streams
// of lane0 end first. Evaluations are shorter than any fault's place in a stream.
inline const char* const kPipeline = R"({
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

inline const Texts kEndless = {"run.passes=100000", "run.on_end=restart"};
inline const Texts kShortly = {"--peer-timeout", "3"};  // where a test waits for it

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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

inline Texts run_arguments(const std::string& file, const std::string& out, const Texts& sets = {},
                           const Texts& more = {}) {
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
inline void check_done(const std::vector<Finished>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    INFO(all[i].err);
    CHECK(all[i].exit == 0);
    CHECK(contains(all[i].out, "results in ") == (i == 0));
    if (i > 0) CHECK(all[i].out + all[i].err == "");
  }
}

// Every process ends with this exit code, and says all of this.
inline void check_ended(const std::vector<Finished>& all, int exit, const Texts& says) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    INFO(all[i].err);
    CHECK(all[i].exit == exit);
    CHECK(all[i].err != "");
    for (const std::string& part : says) CHECK_MESSAGE(contains(all[i].err, part), part);
  }
}

// Two runs left the same, byte for byte.
inline void check_same(const std::string& run, const std::string& whole) {
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
inline std::string whole_run(const std::string& file, const std::string& out, const Texts& sets = {}) {
  const Finished finished = lanewise_command(run_arguments(file, out, sets));
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  return out;
}

inline std::size_t steps_in(const std::string& run) {
  return fs::exists(run + "/metrics.jsonl") ? lines_of(read_text(run + "/metrics.jsonl")).size() : 0;
}

inline std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const std::string& line : lines_of(read_text(run + "/metrics.jsonl")))
    losses.push_back(nlohmann::json::parse(line).at("loss"));
  return losses;
}

inline std::vector<double> weights_of(const std::string& run) {
  const std::string bytes = read_text(run + "/weights.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t begin = sizeof header + header;
  std::vector<float> values((bytes.size() - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

// The largest difference, as a share of the largest value.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
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
inline Texts torchrun_argv(const std::string& logs, const Texts& options, const Texts& command) {
  Texts argv = {fs::absolute(".venv/bin/torchrun").string(), "--standalone", "--no-python", "--log-dir", logs};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

}  // namespace lanewise
