// new-node: what it writes builds and passes its own test as it is.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

const std::string kCommand = fs::absolute(std::getenv("LANEWISE")).string();

TEST_CASE("new-node: each kind builds from the installed package, and passes its own test as written") {
  const TempDir dir;
  const auto done = [&](std::vector<std::string> argv) {
    argv.insert(argv.begin(), "/usr/bin/env");
    const Finished finished = run_program(argv, {.directory = dir.path(), .timeout_s = 600});
    CHECK_MESSAGE(finished.exit == 0, finished.out << finished.err);
    return finished.exit == 0;
  };
  REQUIRE(done({"cmake", "--install", fs::path(kCommand).parent_path().string(), "--prefix", dir.path("prefix")}));
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"source", "double"}, {"per-sample", "moving_mean2"}, {"model", "model"}, {"loss", "loss"}};  // words of C++, too
  for (const auto& [kind, name] : kinds) {
    CAPTURE(kind);
    REQUIRE(done({dir.path("prefix/bin/lanewise"), "new-node", name, "--kind", kind}));
    const std::string build = name + "/build";
    REQUIRE(done({"cmake", "-G", "Ninja", "-S", name, "-B", build, "-DCMAKE_PREFIX_PATH=" + dir.path("prefix")}));
    REQUIRE(done({"cmake", "--build", build}));
    CHECK(fs::exists(dir.path(build + "/" + name + ".json")));
    CHECK(done({"ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error"}));
  }
}

TEST_CASE("new-node: it says what it wrote, and what to do with it") {
  const TempDir dir;
  CHECK(lanewise_command({"new-node", "spike"}, {.directory = dir.path()}).out ==
        "spike/CMakeLists.txt, spike/spike.cc, spike/pipeline.json\n"
        "  cmake -S spike -B spike/build -DCMAKE_PREFIX_PATH=PREFIX    # where lanewise is installed\n"
        "  cmake --build spike/build && ctest --test-dir spike/build\n");
  const auto json =
      nlohmann::json::parse(lanewise_command({"new-node", "two", "--json"}, {.directory = dir.path()}).out);
  CHECK(json == nlohmann::json{{"folder", "two"}, {"files", {"CMakeLists.txt", "two.cc", "pipeline.json"}}});
}

TEST_CASE("new-node: a name that is unfit or taken, a folder that is there and an unknown kind are exit 2") {
  const TempDir dir;
  fs::create_directory(dir.path("here"));
  dir.write("file", "");
  const std::string unfit =
      " is no name for a type; it begins with a letter and has small letters, digits and _, at most 64, as in "
      "moving_mean\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "lanewise new-node needs a name for the type, such as moving_mean; see `lanewise new-node --help`\n"},
      {{"../up"}, "\"../up\"" + unfit},
      {{"2nd"}, "\"2nd\"" + unfit},
      {{"Big"}, "\"Big\"" + unfit},
      {{"a b"}, "\"a b\"" + unfit},
      {{std::string(65, 'a')}, "\"" + std::string(65, 'a') + "\"" + unfit},
      {{"window"}, "\"window\" is the name of a type that is built in; choose another\n"},
      {{"gru"}, "\"gru\" is the name of a type that is built in; choose another\n"},
      {{"test"}, "\"test\" means something else to CMake; choose another name\n"},
      {{"here"}, "the folder here cannot be made (it is there already); choose another name, or another place\n"},
      {{"file"}, "the folder file cannot be made (File exists); choose another name, or another place\n"},
      {{"mine", "--kind", "models"},
       "lanewise new-node: --kind is per-sample, source, model, loss, not \"models\"; did you mean \"model\"?\n"}};
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> all = {"new-node"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished finished = lanewise_command(all, {.directory = dir.path()});
    CHECK(finished.exit == 2);
    CHECK(finished.err == "error: " + message);
  }
  CHECK_FALSE(fs::exists(dir.path("mine")));
}

}  // namespace
}  // namespace lanewise
