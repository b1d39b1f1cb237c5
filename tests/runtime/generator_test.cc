// The parent's side of the generator protocol, against tests/evil_generator.py and programs of a line.
#include "runtime/generators/generator.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>
#include "runtime/generators/generator_log.h"
#include "runtime/generators/generators.h"
#include "tests/files.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

const char* const kPython = ".venv/bin/python";
const char* const kEvil = "tests/evil_generator.py";

GeneratorSettings settings_of(std::vector<std::string> arguments) {
  GeneratorSettings settings;
  settings.stream = "gen7";
  settings.command = {.arguments = std::move(arguments), .folder = ".", .variables = {}};
  settings.seed = [](std::uint64_t run) { return 100 + run; };
  settings.slots = 8;
  settings.most_sample = 1 << 20;
  settings.most_state = 1 << 16;
  settings.start_s = 20;
  return settings;
}
GeneratorSettings evil(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {kPython, kEvil});
  return settings_of(std::move(arguments));
}

struct Taken {
  std::vector<float> values;  // of y
  std::string how;            // "enough", "end", "silence", or the error
  bool right = true;          // samples are those of a good generator
};

// Up to `count` samples; gives up when none comes for so long.
Taken take(Generator& generator, std::size_t count, std::uint64_t seed = 100,
           std::chrono::milliseconds silence = std::chrono::seconds(20)) {
  Taken taken;
  GeneratorFrame frame;
  Clock::time_point last = Clock::now();
  while (taken.values.size() < count) {
    try {
      float x[2], y;
      const auto place = [&](const GeneratorHello&) {
        return FrameMemory{reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(&y)};
      };
      switch (generator.next(frame, place)) {
        case Generator::Next::kFrame: {
          taken.right = taken.right && x[0] == y && x[1] == static_cast<float>(seed % 1000);
          taken.values.push_back(y);
          last = Clock::now();
          break;
        }
        case Generator::Next::kEnd:
          taken.how = "end";
          return taken;
        case Generator::Next::kNewRun:
          ++seed;
          break;
        case Generator::Next::kLater:
          if (Clock::now() - last > silence) {
            taken.how = "silence";
            return taken;
          }
          generator.wait(std::chrono::milliseconds(20));
      }
    } catch (const Error& error) {
      taken.how = fmt::format("{}: {}", static_cast<int>(error.exit()), error.what());
      return taken;
    }
  }
  taken.how = "enough";
  return taken;
}

std::vector<float> numbers(int from, int to) {
  std::vector<float> all;
  for (int i = from; i < to; ++i) all.push_back(static_cast<float>(i));
  return all;
}

std::vector<std::string> output_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char line[1000];
  while (std::fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line);
  ::pclose(pipe);
  return lines;
}

// What the list of faults calls it -> what lanewise has to say; "" for what goes on.
std::string expected_text(const std::string& expectation) {
  if (expectation.starts_with("good") || expectation.ends_with("then good")) return "enough";
  if (expectation == "the end") return "end";
  if (expectation.starts_with("no sample")) return "silence";
  if (expectation.starts_with("signal 9")) return "was killed by signal 9 (SIGKILL; possibly out of memory)";
  if (expectation == "signal 11") return "was killed by signal 11 (SIGSEGV)";
  if (expectation.starts_with("status ")) return "has left with " + expectation.substr(0, 8);
  if (expectation == "the text of the exception") return "cannot go on, after it had told of ";
  if (expectation.starts_with("the socket is closed")) return "has closed its control socket";
  const std::string word = expectation.substr(0, expectation.find(','));
  return fmt::format("broke the protocol: {}: ", word);
}

// Children of this process, zombies included.
int children() {
  int count = 0;
  for (const std::string& line : output_of(fmt::format("ps -o pid=,comm= --ppid {}", ::getpid())))
    count += line.find(" ps") == std::string::npos && line.find(" sh") == std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("generator: every fault of a program is found, named, and leaves no process") {
  const int before = children();
  std::vector<std::pair<std::string, std::string>> faults;
  for (const std::string& line : output_of(fmt::format("{} {} --list", kPython, kEvil))) {
    std::istringstream words(line);
    std::string fault, rest;
    words >> fault >> std::ws;
    std::getline(words, rest);
    faults.emplace_back(fault, rest);
  }
  REQUIRE(faults.size() > 60);
  std::vector<std::string> wrong(faults.size());
  {
    Generators generators({});
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < faults.size(); i = next++) {
        const auto& [fault, expectation] = faults[i];
        const std::string text = expected_text(expectation);
        GeneratorSettings settings = evil({fault});
        const bool silent = (text == "silence" && fault != "no_hello") || fault == "changes_slot" || fault == "stop";
        if (fault == "no_hello") settings.start_s = 2;
        Generator generator(generators, settings);
        generator.begin(0);
        const Taken taken = take(generator, 10, 100, std::chrono::milliseconds(silent ? 1500 : 20000));
        std::string right = text;
        if (fault == "no_hello") right = "has not said hello in 2 s";
        if (fault == "stop") right = "silence";
        // What is sent too late to be of account, or at once with what it follows.
        const bool either = (expectation == "crc, or nothing" && taken.how == "silence") ||
                            (expectation == "order, after the end" && taken.how == "end");
        if (taken.how.find(right) == std::string::npos && !either)
          wrong[i] = fmt::format("{}: {}\n  not: {}", fault, taken.how, right);
        if (!taken.right) wrong[i] += fmt::format("{}: wrong samples", fault);
        if (taken.how.starts_with("5: ") && taken.how.find("its program (") == std::string::npos)
          wrong[i] += fmt::format("{}: the program is not named", fault);
      }
    };
    std::vector<std::jthread> workers;
    for (int i = 0; i < 3; ++i) workers.emplace_back(work);
  }
  for (const std::string& one : wrong) CHECK(one == "");
  CHECK(children() == before);
}

TEST_CASE("generator: a program that cannot be started is named, with the reason and where it was looked for") {
  TemporaryFolder folder;
  write_text(folder.path() + "/plain", "no program\n");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"no_such_program_anywhere"},
       "cannot start the program (\"no_such_program_anywhere\" in .): No such file or directory"},
      {{folder.path() + "/plain"}, "Permission denied"},
      {{"."}, "Permission denied"},
  };
  Generators generators({});
  for (const auto& [arguments, text] : cases) {
    Generator generator(generators, settings_of(arguments));
    generator.begin(0);
    const std::string how = take(generator, 1).how;
    CAPTURE(how);
    CHECK(how.starts_with("5: its program ("));
    CHECK(how.find(text) != std::string::npos);
  }
  GeneratorSettings settings = evil({});
  settings.command.folder = "no/such/folder";
  Generator generator(generators, settings);
  generator.begin(0);
  CHECK(take(generator, 1).how.find("cannot enter its folder") != std::string::npos);
}

TEST_CASE("generator: samples begin again with a reset, go on from a state, or are made again and dropped") {
  Generators generators({});
  Generator generator(generators, evil({}));
  generator.save_every(5);
  generator.begin(0);
  CHECK(take(generator, 30).values == numbers(0, 30));
  const auto state = generator.state(0, 30);
  REQUIRE(state);
  CHECK(state->sequence <= 30);
  CHECK(state->sequence >= 15);

  generator.begin(4);
  Taken taken = take(generator, 20, 104);
  CHECK(taken.right);
  CHECK(taken.values == numbers(0, 20));
  CHECK_FALSE(generator.state(5, 100));

  generator.begin(0, 33, state);
  taken = take(generator, 20);
  CHECK(taken.right);
  CHECK(taken.values == numbers(33, 53));

  Generator another(generators, evil({}));
  another.begin(0, 33, state);
  CHECK(take(another, 5).values == numbers(33, 38));
  Generator third(generators, evil({}));
  third.begin(0, 33);
  CHECK(take(third, 5).values == numbers(33, 38));
}

TEST_CASE("generator: what it makes before it sees that it is to go on from a state is dropped") {
  Generators generators({});
  GeneratorSettings settings = evil({});
  settings.most_state = 64 << 20;
  const GeneratorState state{.run = 0, .sequence = 20, .bytes = std::string(48 << 20, 'x')};  // takes time to be copied
  for (int i = 0; i < 3; ++i) {
    Generator generator(generators, settings);
    generator.begin(0, 23, state);
    const Taken taken = take(generator, 5);
    CHECK(taken.how == "enough");
    CHECK(taken.values == numbers(23, 28));
    CHECK(generator.state(0, 23)->sequence == 20);
  }
}

TEST_CASE("generator: one may leave after its end, also while it is asked for something") {
  Generators generators({});
  for (int i = 0; i < 5; ++i) {
    Generator generator(generators, evil({"end_exit", "--after", "5"}));
    generator.save_every(1);
    for (const std::uint64_t run : {0, 1}) {
      generator.begin(run);
      const Taken taken = take(generator, 100, 100 + run);
      CHECK(taken.how == "end");
      CHECK(taken.right);
      CHECK(taken.values == numbers(0, 5));
    }
  }
}

TEST_CASE("generator: one that fails is started again: from its state, or with the next run, and not for ever") {
  std::mutex mutex;
  std::string said;
  Generators generators({.say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line + "\n";
  }});
  SUBCASE("from its state nothing is lost or twice") {
    GeneratorSettings settings = evil({"kill", "--after", "40"});
    settings.on_failure = OnFailure::kRestart;
    settings.max_restarts = 2;
    Generator generator(generators, settings);
    generator.save_every(4);
    generator.begin(0);
    const Taken taken = take(generator, 60);
    CHECK(taken.how == "enough");
    CHECK(taken.right);
    CHECK(taken.values == numbers(0, 60));
    const std::lock_guard lock(mutex);
    CHECK(said.find("it is started again from its last state (1 of 2)") != std::string::npos);
  }
  SUBCASE("without a state, all it had given is used, and the next run follows") {
    GeneratorSettings settings = evil({"exit_3", "--after", "5"});
    settings.on_failure = OnFailure::kRestart;
    settings.max_restarts = 2;
    Generator generator(generators, settings);
    generator.begin(0);
    const Taken taken = take(generator, 100);
    std::vector<float> all;
    for (int run = 0; run < 3; ++run) {
      for (const float v : numbers(0, 5)) all.push_back(v);
    }
    CHECK(taken.right);
    // The third failure ends it at once, whatever it had given before.
    REQUIRE(taken.values.size() >= 10);
    CHECK(std::equal(taken.values.begin(), taken.values.end(), all.begin()));
    CHECK(taken.how.find("has left with status 3") != std::string::npos);
    CHECK(taken.how.find("it was started again 2 times in 600 s, which is all that max_restarts allows") !=
          std::string::npos);
  }
  SUBCASE("its stream ends, after all that it had given") {
    GeneratorSettings settings = evil({"frame_crc", "--after", "5"});
    settings.on_failure = OnFailure::kEnd;
    Generator generator(generators, settings);
    generator.begin(0);
    const Taken taken = take(generator, 100);
    CHECK(taken.how == "end");
    CHECK(taken.values == numbers(0, 5));
    const std::lock_guard lock(mutex);
    CHECK(said.find("its stream ends here (on_failure)") != std::string::npos);
  }
}

TEST_CASE("generator: what it says is kept in part, and shown with its failure") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/generators.log";
  GeneratorLog log(path, [](const std::string&) {});
  {
    Generators generators({.log = [&](const std::string& stream, std::string_view line) { log.write(stream, line); }});
    Generator generator(generators,
                        settings_of({"sh", "-c", "echo to stdout; printf 'one\\ntwo\\033[0m' >&2; exit 4"}));
    generator.begin(0);
    const std::string how = take(generator, 1).how;
    CHECK(how.ends_with(
        "has left with status 4, after it had told of 0 samples of run 0; it said last:\n  one\n  two\\u001b[0m"));
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().find("gen7: to stdout\n") != std::string::npos);
  CHECK(text.str().find("gen7: one\n") != std::string::npos);
}

TEST_CASE("generator: it is told of its stream, has no descriptor and no signal setting of ours, and dies with us") {
  Generators generators({});
  Generator generator(generators,
                      settings_of({"sh", "-c",
                                   "echo \"$LANEWISE_STREAM $LANEWISE_SEED $PWD\" >&2; ls /proc/self/fd | wc -l >&2;"
                                   "grep -E 'SigIgn|SigBlk' /proc/self/status >&2; exit 1"}));
  ::signal(SIGPIPE, SIG_IGN);
  generator.begin(3);
  const std::string how = take(generator, 1).how;
  CAPTURE(how);
  CHECK(how.find(fmt::format("gen7 103 {}\n", std::filesystem::current_path().string())) != std::string::npos);
  CHECK(how.find("\n  5\n") != std::string::npos);  // 0, 1, 2, the socket, and that of ls
  CHECK(how.find("SigBlk:\\t0000000000000000") != std::string::npos);
  CHECK(how.find("SigIgn:\\t0000000000000000") != std::string::npos);
}

}  // namespace lanewise
