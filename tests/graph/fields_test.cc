#include "graph/fields.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace lanewise {
namespace {

struct All {
  bool flag = false;
  std::int64_t whole = 3;
  std::uint64_t seed = 1;
  double rate = 0.5;
  std::string name = "";
  Path path;
  std::vector<std::int64_t> hidden{8};
  std::vector<double> levels;
  std::vector<std::string> columns;
  std::optional<std::int64_t> steps;
  std::optional<double> minutes;
  std::optional<std::string> port;
  std::int64_t every = 1;

  void fields(Fields& f) {
    f.add("flag", flag, "a flag");
    f.add("whole", whole, "an integer").between(-5, 5);
    f.add("seed", seed, "a seed");
    f.add("rate", rate, "a rate").above(0).at_most(1);
    f.add("name", name, "a name").one_of({"sgd", "adam"});
    f.add("path", path, "a file");
    f.add("hidden", hidden, "a list").at_least(1);
    f.add("levels", levels, "numbers").below(10);
    f.add("columns", columns, "texts");
    f.add("steps", steps, "how many").unit("steps").at_least(1);
    f.add("minutes", minutes, "how long").unit("min").above(0);
    f.add("port", port, "which").one_of({"a", "b"});
    f.group("metrics", "a group", [this](Fields& g) { g.add("every", every, "how often").at_least(1); });
  }
};

struct Outcome {
  All values;
  std::string problems;  // "place rule", one a line
  std::string resolved, written;
};

Outcome read(const std::string& text) {
  Outcome outcome;
  const nlohmann::json values = nlohmann::json::parse(text);
  std::vector<Problem> problems;
  Fields fields({&values, "thing",
                 [](const std::string& key) {
                   return Place{key, ""};
                 },
                 [](const std::string& key) { return std::string(key == "path" ? "folder" : "?"); }},
                problems);
  outcome.values.fields(fields);
  fields.finish();
  for (const Problem& problem : problems) outcome.problems += problem.place.at + "| " + problem.rule + "\n";
  outcome.resolved = fields.resolved().dump();
  outcome.written = fields.written().dump();
  return outcome;
}

TEST_CASE("fields: values of every type are read, and reading back what was resolved gives the same") {
  const Outcome outcome =
      read(R"({"flag": true, "whole": -5, "seed": 18446744073709551615, "rate": 1, "name": "adam", "path": "d/x.csv",
    "hidden": [1, 2], "levels": [1, 2.5], "columns": ["a"], "steps": 7, "minutes": 0.5, "port": "b", "metrics": {"every": 3}})");
  CHECK(outcome.problems == "");
  CHECK(outcome.values.seed == 18446744073709551615u);
  CHECK(outcome.values.path.text == "folder/d/x.csv");
  CHECK(
      outcome.resolved ==
      R"({"flag":true,"whole":-5,"seed":18446744073709551615,"rate":1.0,"name":"adam","path":"folder/d/x.csv","hidden":[1,2],)"
      R"("levels":[1.0,2.5],"columns":["a"],"steps":7,"minutes":0.5,"port":"b","metrics":{"every":3}})");
  CHECK(outcome.written.find(R"("path":"d/x.csv")") != std::string::npos);
  const All back = read_checked<All>(nlohmann::json::parse(outcome.resolved));
  CHECK(back.path.text == "folder/d/x.csv");
  CHECK(back.hidden == outcome.values.hidden);
  CHECK(back.steps == 7);
  CHECK(back.every == 3);
}

TEST_CASE("fields: what is not given has its default, absent is null, and both read back") {
  const Outcome outcome = read("{}");
  CHECK(outcome.problems == "");
  CHECK(
      outcome.resolved ==
      R"({"flag":false,"whole":3,"seed":1,"rate":0.5,"name":"","path":"","hidden":[8],"levels":[],"columns":[],"steps":null,)"
      R"("minutes":null,"port":null,"metrics":{"every":1}})");
  CHECK_FALSE(read_checked<All>(nlohmann::json::parse(outcome.resolved)).steps);
}

TEST_CASE("fields: null takes away the default of what may be absent, and reads back so") {
  struct WithDefault {
    std::optional<std::int64_t> length = 100;
    void fields(Fields& f) { f.add("length", length, "samples").at_least(1); }
  };
  CHECK(read_checked<WithDefault>(nlohmann::json::object()).length == 100);
  CHECK_FALSE(read_checked<WithDefault>({{"length", nullptr}}).length);
}

TEST_CASE("fields: a wrong type is refused for every type, also inside lists and groups") {
  CHECK(
      read(
          R"({"flag": 1, "whole": 3.7, "seed": true, "rate": "0.5", "name": 5, "path": null, "hidden": 8, "levels": [1, "2"],
    "columns": {"a": 1}, "steps": 2.0, "minutes": false, "port": [], "metrics": 3})")
          .problems ==
      "flag| thing: \"flag\" must be true or false, not 1\n"
      "whole| thing: \"whole\" must be an integer, not 3.7\n"
      "seed| thing: \"seed\" must be an integer, not true\n"
      "rate| thing: \"rate\" must be a number, not \"0.5\"\n"
      "name| thing: \"name\" must be text, not 5\n"
      "path| thing: \"path\" must be text, the name of a file, not null\n"
      "hidden| thing: \"hidden\" must be a list of integers, not 8\n"
      "levels/1| thing: element 1 of \"levels\" must be a number, not \"2\"\n"
      "columns| thing: \"columns\" must be a list of texts, not an object\n"
      "steps| thing: \"steps\" must be an integer, not 2.0\n"
      "minutes| thing: \"minutes\" must be a number, not false\n"
      "port| thing: \"port\" must be text, not a list\n"
      "metrics| thing: \"metrics\" must be an object, not 3\n");
}

TEST_CASE("fields: integers out of their type's range are refused, never wrapped") {
  CHECK(read(R"({"whole": 18446744073709551616, "seed": -1})").problems ==
        "whole| thing: \"whole\" must be an integer, not 1.8446744073709552e+19\n"
        "seed| thing: \"seed\" must be at least 0, not -1\n");
  CHECK(read(R"({"whole": 9223372036854775808})").problems ==
        "whole| thing: \"whole\" must be at most 9223372036854775807, not 9223372036854775808\n");
  CHECK(read(R"({"seed": 18446744073709551616})").problems ==
        "seed| thing: \"seed\" must be an integer, not 1.8446744073709552e+19\n");
}

TEST_CASE("fields: bounds and choices are checked, each element of a list by itself") {
  CHECK(
      read(
          R"({"whole": 6, "rate": 0, "name": "adm", "hidden": [4, 0, -1], "levels": [10], "steps": 0, "minutes": 0, "port": "c",
    "metrics": {"every": 0}})")
          .problems ==
      "whole| thing: \"whole\" must be between -5 and 5, not 6\n"
      "rate| thing: \"rate\" must be above 0, not 0\n"
      "name| thing: \"name\" must be one of sgd, adam, not \"adm\"; did you mean \"adam\"?\n"
      "hidden/1| thing: \"hidden\" must be at least 1, not 0\n"
      "hidden/2| thing: \"hidden\" must be at least 1, not -1\n"
      "levels/0| thing: \"levels\" must be below 10, not 10\n"
      "steps| thing: \"steps\" must be at least 1, not 0\n"
      "minutes| thing: \"minutes\" must be above 0, not 0\n"
      "port| thing: \"port\" must be one of a, b, not \"c\"\n"
      "metrics/every| thing.metrics: \"every\" must be at least 1, not 0\n");
  CHECK(read(R"({"rate": 1.5})").problems == "rate| thing: \"rate\" must be above 0 and at most 1, not 1.5\n");
}

TEST_CASE("fields: unknown keys are told with the nearest right name, or with all of them") {
  CHECK(read(R"({"whoel": 1, "SEED": 2, "xyzzy": 3, "metrics": {"evry": 1, "q": 2}, "a/b": 1})").problems ==
        "metrics/evry| thing.metrics has no parameter \"evry\"; did you mean \"every\"?\n"
        "metrics/q| thing.metrics has no parameter \"q\"; it has every\n"
        "SEED| thing has no parameter \"SEED\"; did you mean \"seed\"?\n"
        "a~1b| thing has no parameter \"a/b\"; it has flag, whole, seed, rate, name, path, hidden, levels, columns, "
        "steps, minutes, "
        "port and metrics\n"
        "whoel| thing has no parameter \"whoel\"; did you mean \"whole\"?\n"
        "xyzzy| thing has no parameter \"xyzzy\"; it has flag, whole, seed, rate, name, path, hidden, levels, columns, "
        "steps, "
        "minutes, port and metrics\n");
}

TEST_CASE("fields: a required field is asked for, and a rule of several is told at its field") {
  const nlohmann::json values = {{"b", "x"}};
  std::vector<Problem> problems;
  Fields fields({&values, "thing",
                 [](const std::string& key) {
                   return Place{"at " + key, ""};
                 },
                 [](const std::string&) { return std::string(); }, "key"},
                problems);
  std::string a, b;
  fields.add("a", a, "").required();
  fields.add("b", b, "").required();
  fields.problem("b", "does not suit a");
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].place.at + ": " + problems[0].rule == "at : thing needs the key \"a\"");
  CHECK(problems[1].place.at + ": " + problems[1].rule == "at b: thing: does not suit a");
}

TEST_CASE("fields: describing reads nothing and tells type, default, bounds, unit and help") {
  std::string text;
  for (const FieldInfo& info : describe([](Fields& f) { All().fields(f); })) {
    text += fmt::format("{} ({}) = {} [{}] {} {}{}\n", info.name, info.type, info.fallback.dump(), info.bounds(),
                        info.unit, info.help, info.group.empty() ? "" : " {" + info.group[0].name + "}");
  }
  CHECK(text ==
        "flag (true or false) = false []  a flag\n"
        "whole (integer) = 3 [between -5 and 5]  an integer\n"
        "seed (integer) = 1 [at least 0]  a seed\n"
        "rate (number) = 0.5 [above 0 and at most 1]  a rate\n"
        "name (text) = \"\" [one of sgd, adam]  a name\n"
        "path (file) = \"\" []  a file\n"
        "hidden (list of integers) = [8] [at least 1]  a list\n"
        "levels (list of numbers) = [] [below 10]  numbers\n"
        "columns (list of texts) = [] []  texts\n"
        "steps (integer) = null [at least 1] steps how many\n"
        "minutes (number) = null [above 0] min how long\n"
        "port (text) = null [one of a, b]  which\n"
        "metrics (group) = null []  a group {every}\n");
}

TEST_CASE("fields: parameters of a plan that do not read back are an internal error") {
  CHECK_THROWS_WITH_AS(read_checked<All>(nlohmann::json{{"whole", "x"}}),
                       "a plan's parameters do not read back: : \"whole\" must be an integer, not \"x\"", Error);
}

}  // namespace
}  // namespace lanewise
