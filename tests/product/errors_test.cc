// Broken pipeline files, and every word that they are answered with.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> broken_files() {
  std::vector<std::string> stems;
  for (const auto& entry : fs::directory_iterator("tests/product/broken")) {
    if (entry.path().extension() == ".json") stems.push_back(entry.path().stem().string());
  }
  std::sort(stems.begin(), stems.end());
  return stems;
}

}  // namespace

TEST_CASE(
    "check: broken files are answered with all their problems, each with its place, its rule and the nearest name") {
  const std::vector<std::string> stems = broken_files();
  REQUIRE(stems.size() >= 15);
  for (const std::string& stem : stems) {
    CAPTURE(stem);
    const Finished checked = lanewise_command({"check", "tests/product/broken/" + stem + ".json"});
    CHECK(checked.out == "");
    const bool refused = checked.exit == 3 || checked.exit == 4;
    CHECK(refused);
    check_golden(stem + ".txt", fmt::format("exit {}\n{}", checked.exit, checked.err));
  }
  for (const auto& entry : fs::directory_iterator("tests/product/golden")) {
    CAPTURE(entry.path().string());
    CHECK(std::count(stems.begin(), stems.end(), entry.path().stem().string()) == 1);
  }
}

TEST_CASE("run: a broken file is answered like by check, and leaves nothing behind") {
  const TempDir dir;
  for (const std::string& stem : {std::string("names"), std::string("data")}) {
    const std::string file = "tests/product/broken/" + stem + ".json";
    const Finished checked = lanewise_command({"check", file}),
                   ran = lanewise_command({"run", file, "--out", dir.path("out")});
    CHECK(ran.exit == checked.exit);
    CHECK(ran.err == checked.err);
    CHECK(ran.out == "");
    CHECK_FALSE(fs::exists(dir.path("out")));
  }
}

TEST_CASE("check: with --json the problems are a list on standard output too") {
  const Finished checked = lanewise_command({"check", "tests/product/broken/names.json", "--json"});
  const auto json = nlohmann::json::parse(checked.out);
  CHECK(checked.exit == 3);
  CHECK(json.at("exit") == 3);
  REQUIRE(json.at("problems").size() >= 5);
  for (const auto& problem : json.at("problems")) {
    CHECK(problem.at("at").get<std::string>().starts_with("tests/product/broken/names.json:"));
    CHECK(checked.err.find(problem.at("pointer").get<std::string>()) != std::string::npos);
    CHECK(problem.at("rule") != "");
  }
}

TEST_CASE("check: nesting beyond the bound is refused at its place, through a file and through standard input") {
  const TempDir dir;
  const std::string arrays = std::string(100'000, '[') + std::string(100'000, ']');
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  for (const std::string& text : {arrays, objects}) {
    const Finished from_file = lanewise_command({"check", dir.write("deep.json", text)});
    const Finished from_input = lanewise_command({"check", "-"}, {.input = text});
    CHECK(from_file.exit == 3);
    CHECK(from_input.exit == 3);
    CHECK(from_file.err.find("64") != std::string::npos);
    CHECK(from_file.err.find(dir.path("deep.json") + ":1:") != std::string::npos);
    CHECK(replaced(from_file.err, dir.path("deep.json"), "X") ==
          replaced(replaced(from_input.err, "standard input", "X"), "-:1", "X:1"));
  }
}

TEST_CASE("run: a file whose path is not UTF-8 is refused before anything is made, and checked all the same") {
  const TempDir dir;
  const std::string folder = dir.path("n\xff");
  fs::create_directories(folder);
  fs::copy_file("configs/minimal.json", folder + "/minimal.json");
  CHECK(lanewise_command({"check", folder + "/minimal.json"}).exit == 0);
  const Finished run = lanewise_command({"run", folder + "/minimal.json", "--out", dir.path("run")});
  CHECK(run.exit == 2);
  CHECK(run.err.find("this path is not UTF-8, so that the run's manifest could not name it") != std::string::npos);
  CHECK_FALSE(fs::exists(dir.path("run")));
}

TEST_CASE("check: a base that is empty, or \"-\", is no file") {
  const TempDir dir;
  const Finished empty = lanewise_command({"check", dir.write("e.json", R"({ "base": "" })")});
  CHECK(empty.exit == 3);
  CHECK(empty.err.find("\"base\" is empty; name the file that this one changes") != std::string::npos);
  const Finished dash = lanewise_command({"check", dir.write("d.json", R"({ "base": "-" })")});
  CHECK(dash.exit == 3);
  CHECK(dash.err.find("cannot be read") != std::string::npos);
}

TEST_CASE("check: a file of more than 16 MiB, a missing one and a directory are refused by name") {
  const TempDir dir;
  const std::string large = dir.write("large.json", std::string((16U << 20) + 1, ' '));
  for (const std::string& file : {large, dir.path("none.json"), dir.path()}) {
    const Finished checked = lanewise_command({"check", file});
    CHECK(checked.exit == 3);
    CHECK(checked.err.find(file) != std::string::npos);
  }
}

}  // namespace lanewise
