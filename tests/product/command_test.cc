// The command line itself: help, unknown words, standard output that cannot be written, generated files.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

const std::vector<std::string> kCommands = {"run",   "bench",  "check",    "graph",
                                            "nodes", "schema", "new-node", "check-node"};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("lanewise: without a command it prints its help and exits with 2, with --help with 0") {
  const Finished bare = lanewise_command({}), asked = lanewise_command({"--help"});
  CHECK(bare.exit == 2);
  CHECK(bare.out == "");
  CHECK(asked.exit == 0);
  CHECK(asked.out == bare.err);
  for (const std::string& command : kCommands) CHECK(contains(asked.out, "\n  " + command + " "));
  CHECK(contains(asked.out, "11 stopped on request"));
}

TEST_CASE("lanewise: every command explains itself and shows examples") {
  for (const std::string& command : kCommands) {
    CAPTURE(command);
    const Finished help = lanewise_command({command, "--help"});
    CHECK(help.exit == 0);
    CHECK(help.err == "");
    CHECK(contains(help.out, "Examples:\n  lanewise " + command));
    CHECK(contains(help.out, "--json"));
  }
}

TEST_CASE("lanewise: what it does not understand is exit 2 with the nearest right word") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"chekc", "x.json"},
       "error: lanewise has no command \"chekc\"; did you mean \"check\"?; `lanewise --help` lists them\n"},
      {{"run", "configs/minimal.json", "--quite"},
       "error: lanewise run has no option \"--quite\"; did you mean \"--quiet\"?; see `lanewise run --help`\n"},
      {{"run"}, "error: lanewise run needs a pipeline file, such as configs/minimal.json; see `lanewise run --help`\n"},
      {{"check", "configs/minimal.json", "more"},
       "error: lanewise check does not know what to do with \"more\"; see `lanewise check --help`\n"},
      {{"run", "configs/minimal.json", "--out"},
       "error: lanewise run: --out: 1 required DIR missing; see `lanewise run --help`\n"},
      {{"graph", "configs/minimal.json", "--format", "dott"},
       "error: lanewise graph: --format is text, dot or json, not \"dott\"; did you mean \"dot\"?\n"},
      {{"nodes", "windo"},
       "error: there is no node type, model or loss \"windo\"; did you mean \"window\"?; `lanewise nodes` lists them "
       "all\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const Finished finished = lanewise_command(arguments);
    CHECK(finished.exit == 2);
    CHECK(finished.out == "");
    CHECK(finished.err == message);
  }
}

TEST_CASE("lanewise: a malformed override is exit 2, one with an unknown name is exit 3 at the command line") {
  for (const char* malformed : {"gen", "=3", "gen.period"}) {
    CAPTURE(malformed);
    CHECK(lanewise_command({"check", "configs/minimal.json", "--set", malformed}).exit == 2);
  }
  CHECK(lanewise_command({"check", "configs/minimal.json", "--swap", "gen={\"type\""}).exit == 2);
  for (const char* unknown : {"gne.period=3", "gen.peroid=3", "run.stepps=3"}) {
    CAPTURE(unknown);
    const Finished finished = lanewise_command({"check", "configs/minimal.json", "--set", unknown});
    CHECK(finished.exit == 3);
    CHECK(finished.err.starts_with("command line"));
    CHECK(contains(finished.err, "did you mean"));
  }
}

TEST_CASE("lanewise: a standard output that is full or closed is an error and no crash") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& output) {
    const Finished finished = lanewise_command(arguments, {.output = output});
    CHECK(finished.exit == 2);
    return finished.err;
  };
  const std::string full =
      "error: standard output cannot be written (No space left on device); send it somewhere else\n";
  CHECK(refused({"check", "configs/minimal.json"}, "/dev/full") == full);
  CHECK(refused({"schema"}, "/dev/full") == full);
  CHECK(refused({"run", "--help"}, "/dev/full") == full);
  CHECK(refused({"graph", "configs/minimal.json"}, "-") ==
        "error: standard output cannot be written (Bad file descriptor); send it somewhere else\n");
}

TEST_CASE("lanewise: control characters of a file's names never reach the terminal") {
  const std::string text =
      R"({ "name": "a\u001b[31mb\u009b", "nodes": [ { "id": "gen\u0007", "type": "si\u001bne" } ] })";
  for (const Finished& finished : {lanewise_command({"check", "-"}, {.input = text}),
                                   lanewise_command({"check", "\x1b[2J.json"}), lanewise_command({"che\x1b[2Jck"})}) {
    CHECK(finished.exit != 0);
    CHECK_FALSE(contains(finished.err, "\x1b"));
    CHECK_FALSE(contains(finished.err, "\x07"));
    CHECK_FALSE(contains(finished.err, "\xc2\x9b"));
  }
}

TEST_CASE("check: a file of programs to start starts none of them") {
  const TempDir dir;
  const std::string mark = dir.path("started");
  const std::string touch = fmt::format(R"(["/usr/bin/touch", "{}"])", mark);
  const std::string text = fmt::format(
      R"({{ "models": {{ "net": {{ "type": "mlp" }}, "code": {{ "type": "torchscript", "path": "{0}" }} }},
           "nodes": [
             {{ "id": "gen", "repeat": 2, "type": "process", "params": {{ "command": {1} }} }},
             {{ "id": "shell", "type": "process", "params": {{ "command": "touch {0}; $(touch {0}) `touch {0}`" }} }},
             {{ "id": "plug", "type": "csv", "params": {{ "path": "|touch {0}" }} }},
             {{ "id": "pair", "type": "pair", "in": [ {{ "from": "gen" }} ] }} ],
           "run": {{ "steps": 1 }} }})",
      mark, touch);
  const std::string file = dir.write("commands.json", text);
  for (const char* command : {"check", "graph"}) {
    const Finished finished = lanewise_command({command, file});
    CHECK(finished.exit == 3);
    CHECK_FALSE(std::filesystem::exists(mark));
  }
}

TEST_CASE("check: a pipe or device as a data file is not waited for") {
  const TempDir dir;
  REQUIRE(run_program({"/usr/bin/mkfifo", dir.path("pipe.csv")}).exit == 0);
  for (const std::string& path : {dir.path("pipe.csv"), std::string("/dev/zero"), dir.path()}) {
    CAPTURE(path);
    const std::string text = fmt::format(
        R"({{ "models": {{ "net": {{ "type": "mlp" }} }},
             "nodes": [ {{ "id": "gen", "type": "csv", "params": {{ "path": "{}", "features": ["a"], "target": ["b"] }} }},
                        {{ "id": "pair", "type": "pair", "in": [ {{ "from": "gen" }} ] }},
                        {{ "id": "lane", "type": "compute", "in": [ {{ "from": "pair" }}, {{ "from": "opt", "initial": 1 }} ], "device": "cpu:*", "params": {{ "model": "net" }} }},
                        {{ "id": "reduce", "type": "allreduce", "in": [ {{ "from": "lane" }} ] }},
                        {{ "id": "opt", "type": "optimizer", "in": [ {{ "from": "reduce" }} ] }} ],
             "run": {{ "passes": 1 }} }})",
        path);
    const Finished checked = lanewise_command({"check", "-"}, {.input = text, .timeout_s = 20});
    CHECK(checked.exit == 4);
    CHECK(contains(checked.err, path));
  }
}

TEST_CASE("nodes: what is generated from the descriptors is up to date") {
  // Renewed by tools/renew-golden.
  CHECK(lanewise_command({"schema"}).out == read_text("configs/schema.json"));
  CHECK(lanewise_command({"nodes", "--markdown"}).out == read_text("nodes/README.md"));
}

TEST_CASE("nodes: a type of the list can be asked for, as text and as JSON, and says what it takes") {
  const auto all = nlohmann::json::parse(lanewise_command({"nodes", "--json"}).out);
  REQUIRE(all.size() >= 20);
  const std::string list = lanewise_command({"nodes"}).out;
  int asked = 0;
  for (const auto& entry : all) {
    const std::string name = entry.at("name");
    CAPTURE(name);
    CHECK(contains(list, "  " + name));
    if (name != "csv" && name != "gru" && name != "huber") continue;
    ++asked;
    CHECK(nlohmann::json::parse(lanewise_command({"nodes", name, "--json"}).out) == entry);
    const std::string text = lanewise_command({"nodes", name}).out;
    CHECK(text.starts_with(name + " ("));
    for (const auto& parameter : entry.at("parameters")) CHECK(contains(text, parameter.at("name").get<std::string>()));
  }
  CHECK(asked == 3);
}

}  // namespace lanewise
