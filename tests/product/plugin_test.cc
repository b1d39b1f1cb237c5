// Plugins through the command: what loads them and what does not, what is refused, and the example from the installed
// package.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

const std::string kBuild = fs::absolute(std::getenv("LANEWISE")).parent_path().string();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string pipeline(const std::string& plugins) {
  return "{ \"plugins\": [" + plugins + R"(],
    "models": { "net": { "type": "linear" } },
    "nodes": [
      { "id": "gen", "repeat": 2, "type": "sine" },
      { "id": "mine", "repeat": 2, "type": "pass", "in": [ { "from": "gen", "take": 1 } ] },
      { "id": "pair", "type": "pair", "in": [ { "from": "mine" } ] },
      { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 1 } ], "device": "cpu:*",
        "params": { "model": "net" } },
      { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
      { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
    "run": { "steps": 4 }, "evaluate": { "steps": 2 } })";
}

// A folder with the trap (tests/plugins/trap.cc), its descriptors, and a pipeline that names it.
struct Trap {
  Trap() {
    fs::copy(kBuild + "/libtrap.so", dir.path("libtrap.so"));
    fs::copy(kBuild + "/trap.json", dir.path("trap.json"));
    dir.write("mine.json", pipeline("\"libtrap.so\""));
  }

  // Runs the command in the folder. `trap`: what goes wrong when the plugin tells its types.
  Finished command(std::vector<std::string> arguments, const std::string& trap = "") {
    fs::remove(dir.path("loaded"));
    return lanewise_command(std::move(arguments), {.environment = {"TRAP_FILE=" + dir.path("loaded"), "TRAP=" + trap},
                                                   .directory = dir.path()});
  }
  // Whether the last command has loaded it.
  bool loaded() const { return fs::exists(dir.path("loaded")); }
  // Puts `now`, no longer than `before`, in its place within the library.
  void patch(const std::string& before, std::string now) {
    now.resize(before.size());
    const std::string bytes = read_text(dir.path("libtrap.so"));
    REQUIRE(contains(bytes, before));
    fs::remove(dir.path("libtrap.so"));
    dir.write("libtrap.so", replaced(bytes, before, now));
  }

  TempDir dir;
};

TEST_CASE("plugin: check, graph and schema load nothing; run and nodes --plugin do") {
  Trap trap;
  const std::vector<std::vector<std::string>> safe = {{"check", "mine.json"},
                                                      {"check", "mine.json", "--json"},
                                                      {"check", "mine.json", "--plugin", "libtrap.so"},
                                                      {"graph", "mine.json"},
                                                      {"graph", "mine.json", "--evaluate", "--format", "dot"},
                                                      {"schema", "--plugin", "libtrap.so"}};
  for (const auto& arguments : safe) {
    CAPTURE(arguments[0]);
    const Finished finished = trap.command(arguments);
    CHECK(finished.exit == 0);
    CHECK(finished.err == "");
    CHECK(contains(finished.out, "pass"));
    CHECK_FALSE(trap.loaded());
  }
  CHECK(trap.command({"run", "mine.json", "--out", "run"}).exit == 0);
  CHECK(trap.loaded());
  CHECK(trap.command({"nodes", "--plugin", "libtrap.so"}).out ==
        "node types\n  pass  per-sample  passes samples on\n\n`lanewise nodes NAME` tells all about one.\n");
  CHECK(trap.loaded());
  CHECK(trap.command({"nodes", "--plugin", "libtrap.so", "--json"}).out == read_text(trap.dir.path("trap.json")));
}

TEST_CASE("plugin: a run goes on with the same plugin only, and nothing is loaded of another") {
  Trap trap;
  REQUIRE(trap.command({"run", "mine.json", "--out", "run"}).exit == 0);
  for (const std::string command : {"resume", "eval", "predict"}) {
    CAPTURE(command);
    CHECK(trap.command({command, "run", "--set", "evaluate.steps=3"}).exit == 0);
    CHECK(trap.loaded());
  }
  CHECK(trap.command({"export", "run", "--to", "weights.safetensors"}).exit == 0);
  CHECK_FALSE(trap.loaded());

  std::ofstream(trap.dir.path("libtrap.so"), std::ios::app) << "another build";
  for (const std::string command : {"resume", "eval", "predict"}) {
    CAPTURE(command);
    const Finished finished = trap.command({command, "run"});
    CHECK(finished.exit == 6);
    CHECK(
        contains(finished.err, "was made from another plan than this version makes of it:\n  plugins.libtrap.so: \""));
    CHECK_FALSE(trap.loaded());
  }
}

TEST_CASE("plugin: one of the command line is found again by resume, wherever that runs") {
  Trap trap;
  trap.dir.write("mine.json", pipeline(""));
  REQUIRE(trap.command({"run", "mine.json", "--plugin", "./libtrap.so", "--out", "run"}).exit == 0);
  CHECK(
      lanewise_command({"resume", trap.dir.path("run"), "--set", "run.steps=6", "--quiet"}, {.directory = "/"}).exit ==
      0);
}

TEST_CASE("plugin: one that cannot be used is refused before anything of it runs") {
  struct Case {
    std::string before, now, message;
  };
  const std::vector<Case> cases = {
      {"plugin interface: 1", "plugin interface: 7",
       "was built for another lanewise: its plugin interface is 7, and this lanewise has 1; build it again with the "
       "package "
       "of this one"},
      {"\nThis is a plugin of lanewise.\n", "",
       "is a library, but no plugin of lanewise; it needs a LANEWISE_PLUGIN (lanewise/nodes/plugin.h)"},
      {"\x7f"
       "ELF",
       "text", "is no library; name the lib….so that its build has made"}};
  for (const Case& one : cases) {
    Trap trap;
    trap.patch(one.before, one.now);
    for (const std::string command : {"check", "run"}) {
      const Finished finished = trap.command({command, "mine.json"});
      CHECK(finished.exit == 3);
      CHECK(finished.err == "mine.json:1:15  /plugins/0\n  the plugin \"libtrap.so\" " + one.message +
                                "\n1 problem; nothing was started\n");
      CHECK_FALSE(trap.loaded());
    }
    const Finished listed = trap.command({"nodes", "--plugin", "libtrap.so"});
    CHECK(listed.exit == 3);
    CHECK(listed.err == "error: the plugin \"libtrap.so\" " + one.message + "\n");
    CHECK_FALSE(trap.loaded());
  }
}

TEST_CASE("plugin: what goes wrong while it is loaded is told by run, with what to do") {
  const std::string path = "./libtrap.so";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"throw", "failed while it told its types: no licence"},
      {"throw 7", "failed while it told its types, by an exception that is no std::exception"},
      {"built in", "has a node type \"window\", and that name is taken: it is built in; give it another name"},
      {"twice", "has a node type \"pass\", and that name is taken: this plugin has it twice; give it another name"},
      {"no name", "names a node type \"two words\"; a name is made of letters, digits and _, at most 64"},
      {"reduce",
       "has a node type \"pass\" of the role reduce; plugins bring sources, per-sample nodes, joins and sinks"},
      {"more",
       "is not what trap.json says of it (file -> library):\n    node type another: only in the library\n"
       "    write the file anew by `lanewise nodes --plugin libtrap.so --json > trap.json`"}};
  for (const auto& [wrong, message] : cases) {
    Trap trap;
    CAPTURE(wrong);
    const Finished finished = trap.command({"run", "mine.json"}, wrong);
    CHECK(finished.exit == 3);
    CHECK(finished.err ==
          "mine.json:1:15  /plugins/0\n  the plugin \"libtrap.so\" " + message + "\n1 problem; nothing was started\n");
    CHECK(trap.command({"check", "mine.json"}, wrong).exit == 0);
  }
}

TEST_CASE("plugin: a library that the loader refuses, or that has no entry, is told as such") {
  Trap trap;
  const std::string bytes = read_text(trap.dir.path("libtrap.so"));
  fs::remove(trap.dir.path("libtrap.so"));
  trap.dir.write("libtrap.so", bytes.substr(0, 40) + std::string(24, '\xff') + bytes.substr(64));
  Finished finished = trap.command({"run", "mine.json"});
  CHECK(finished.exit == 3);
  CHECK(contains(finished.err, "  the plugin \"libtrap.so\" does not load ("));
  CHECK(contains(finished.err, "); build it again against this lanewise\n"));
  CHECK_FALSE(trap.loaded());

  Trap other;
  other.patch(std::string("\0lanewise_plugin\0", 17), std::string("\0lanewise_plugim\0", 17));
  finished = other.command({"run", "mine.json"});
  CHECK(finished.exit == 3);
  CHECK(contains(finished.err,
                 "  the plugin \"libtrap.so\" has no function lanewise_plugin; it needs a LANEWISE_PLUGIN "));
}

TEST_CASE("plugin: without its descriptors it is refused with the command that writes them") {
  Trap trap;
  fs::remove(trap.dir.path("trap.json"));
  const Finished finished = trap.command({"check", "mine.json"});
  CHECK(finished.exit == 3);
  const std::string command = "lanewise nodes --plugin libtrap.so --json > trap.json";
  CHECK(contains(finished.err, "is told by trap.json, which is not there; write it by `" + command + "`"));
  trap.dir.write("trap.json", trap.command({"nodes", "--plugin", "libtrap.so", "--json"}).out);
  CHECK(trap.command({"check", "mine.json"}).exit == 0);
}

TEST_CASE("plugin: the example is built from the installed package, and its tests pass") {
  const TempDir dir;
  const auto done = [](const std::vector<std::string>& argv) {
    const Finished finished = run_program(argv, {.timeout_s = 600});
    CHECK_MESSAGE(finished.exit == 0, finished.out << finished.err);
    return finished.exit == 0;
  };
  REQUIRE(done({"/usr/bin/env", "cmake", "--install", kBuild, "--prefix", dir.path("prefix")}));
  REQUIRE(done({"/usr/bin/env", "cmake", "-G", "Ninja", "-S", "examples/plugin", "-B", dir.path("build"),
                "-DCMAKE_PREFIX_PATH=" + dir.path("prefix")}));
  REQUIRE(done({"/usr/bin/env", "cmake", "--build", dir.path("build")}));
  CHECK(done({"/usr/bin/env", "ctest", "--test-dir", dir.path("build"), "--output-on-failure"}));
  CHECK(contains(
      lanewise_command({"check", "examples/plugin/pipeline.json", "--plugin", dir.path("build/libseries.so")}).out,
      "4 x  difference  diff"));
}

}  // namespace
}  // namespace lanewise
