#include "graph/text.h"
#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

// a counts rows from 0, b is ten times as much.
std::string counting(int rows) {
  std::string content = "a,b\n";
  for (int i = 0; i < rows; ++i) content += fmt::format("{},{}\n", i, 10 * i);
  return content;
}

// All samples of a file as texts, or the error, with the file's name masked.
Lines samples_of(const std::string& content, nlohmann::json params, SourceRules rules = {}, bool normalized = false) {
  const TemporaryFile file(content);
  params["path"] = file.path();
  if (!params.contains("features")) params["features"] = {"a"};
  if (!params.contains("target")) params["target"] = {"b"};
  std::vector<BenchNode> parts = {{"gen0", csv(), params}};
  if (normalized) {
    parts.push_back({"win0", window(), nlohmann::json::object(), {"gen0"}});
    parts.push_back({"norm0", normalize(), nlohmann::json::object(), {"win0"}});
  } else {
    parts.push_back({"pair0", pair(), nlohmann::json::object(), {"gen0"}});
  }
  const Bench bench(parts, rules);
  if (!bench.problems.empty()) {
    Lines lines = rules_of(bench.problems);
    for (std::string& line : lines) line = file.masked(line);
    return lines;
  }
  Lines lines;
  NodeRunner gen(bench, "gen0");
  const std::string error = error_of([&] { lines = texts(gen.take(1000)); });
  return error.empty() ? lines : Lines{file.masked(error)};
}

TEST_CASE("csv: features come from `horizon` rows before the target") {
  CHECK(samples_of(counting(3), {}) == Lines{"run 0 seq 0 start | x 0 | y 10", "run 0 seq 1 | x 1 | y 20"});
  CHECK(samples_of(counting(3), {{"horizon", 2}}) == Lines{"run 0 seq 0 start | x 0 | y 20"});
  CHECK(samples_of(counting(2), {{"horizon", 0}}) ==
        Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 | x 1 | y 10"});
}

TEST_CASE("csv: rows are target rows; features may come from before them") {
  CHECK(samples_of(counting(9), {{"rows", "5:7"}}) ==
        Lines{"run 0 seq 0 start | x 4 | y 50", "run 0 seq 1 | x 5 | y 60"});
  CHECK(samples_of(counting(9), {{"rows", "7:"}}) ==
        Lines{"run 0 seq 0 start | x 6 | y 70", "run 0 seq 1 | x 7 | y 80"});
  CHECK(samples_of(counting(9), {{"rows", ":2"}}) == Lines{"run 0 seq 0 start | x 0 | y 10"});
  CHECK(samples_of(counting(3), {{"rows", "2:99"}}) == Lines{"run 0 seq 0 start | x 1 | y 20"});
}

TEST_CASE("csv: context rows come before the range with weight 0, as far as there are any") {
  CHECK(samples_of(counting(9), {{"rows", "7:8"}, {"context", 2}}) == Lines{"run 0 seq 0 start weight 0 | x 4 | y 50",
                                                                            "run 0 seq 1 weight 0 | x 5 | y 60",
                                                                            "run 0 seq 2 | x 6 | y 70"});
  CHECK(samples_of(counting(9), {{"rows", "2:3"}, {"context", 5}}) ==
        Lines{"run 0 seq 0 start weight 0 | x 0 | y 10", "run 0 seq 1 | x 1 | y 20"});
}

TEST_CASE("csv: a missing feature is the one before it in the file, also from before the range") {
  CHECK(samples_of("a,b\n1,10\nNA,20\n,30\n4,40\n", {{"rows", "2:"}}) ==
        Lines{"run 0 seq 0 start | x 1 | y 30", "run 0 seq 1 | x 1 | y 40"});
}

TEST_CASE("csv: a missing target weighs nothing and stays NaN") {
  CHECK(samples_of("a,b\n1,10\n2,\n3,30\n", {}) ==
        Lines{"run 0 seq 0 start weight 0 | x 1 | y nan", "run 0 seq 1 | x 2 | y 30"});
  CHECK(samples_of("a,b,c\n1,10,5\n2,,6\n", {{"target", {"b", "c"}}}) ==
        Lines{"run 0 seq 0 start weight 0 | x 1 | y nan 6"});
}

TEST_CASE("csv: values before a column's first reach a normalize node as NaN, and are an error without one") {
  const std::string content = "a,b\n,10\n\n2,20\n3,30\n";
  CHECK(samples_of(content, {}, {}, /*normalized=*/true) ==
        Lines{"run 0 seq 0 start | x nan | y 20", "run 0 seq 1 | x 2 | y 30"});
  CHECK(samples_of(content, {}) ==
        Lines{"4: FILE:2: column \"a\" has no value up to this row; a normalize node behind gen0 "
              "would turn it into the mean"});
}

TEST_CASE("csv: an evaluation knows the last valid target as of the features' row, also from before the range") {
  CHECK(samples_of("a,b\n0,7\n1,\n2,20\n3,30\n4,40\n", {{"rows", "1:4"}, {"horizon", 1}},
                   {.end_rule = "first", .evaluating = true}) ==
        Lines{"run 0 seq 0 start weight 0 | x 0 | y nan | known 7", "run 0 seq 1 | x 1 | y 20 | known 7",
              "run 0 seq 2 | x 2 | y 30 | known 20"});
  CHECK(samples_of(counting(6), {{"rows", "4:"}, {"horizon", 3}}, {.end_rule = "first", .evaluating = true}) ==
        Lines{"run 0 seq 0 start | x 1 | y 40 | known 10", "run 0 seq 1 | x 2 | y 50 | known 20"});
}

TEST_CASE("csv: at horizon 0 the target itself is not known, only the one before") {
  CHECK(samples_of(counting(2), {{"horizon", 0}}, {.end_rule = "first", .evaluating = true}) ==
        Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 | x 1 | y 10 | known 0"});
}

TEST_CASE("csv: time is the target row's") {
  CHECK(samples_of("t,a,b\n1700000000,1,1\n1700000000.25,2,2\n1700000064,3,3\n", {{"time", "t"}}) ==
        Lines{"run 0 seq 0 start time 1700000000250000000 | x 1 | y 2",
              "run 0 seq 1 time 1700000064000000000 | x 2 | y 3"});
}

TEST_CASE("csv: class numbers are integers, a missing one weighs nothing") {
  const TemporaryFile file("a,b\n1,0\n2,2\n3,\n");
  const Bench bench({{"gen0", csv(), {{"path", file.path()}, {"features", {"a"}}, {"target", {"b"}}, {"classes", 3}}}});
  NodeRunner gen(bench, "gen0");
  const std::vector<Sample> samples = gen.take(5);
  CHECK(texts(samples) == Lines{"run 0 seq 0 start | x 1 | y 2", "run 0 seq 1 weight 0 | x 2 | y 0"});
  CHECK((samples[0].y.scalar_type() == at::kLong));
  CHECK(bench.node("gen0").signatures[0].integer_target);
  CHECK(samples_of("a,b\n1,3\n", {{"classes", 3}}) ==
        Lines{"4: FILE:2: column \"b\": \"3\" is no class number below 3"});
  CHECK(samples_of("a,b\n1,0.5\n", {{"classes", 3}}) ==
        Lines{"4: FILE:2: column \"b\": \"0.5\" is no class number below 3"});
}

TEST_CASE("csv: a restart reads the same rows again") {
  const TemporaryFile file(counting(3));
  const Bench bench({{"gen0", csv(), {{"path", file.path()}, {"features", {"a"}}, {"target", {"b"}}}}},
                    {.end_rule = "restart", .passes = 1});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(3)) ==
        Lines{"run 0 seq 0 start | x 0 | y 10", "run 0 seq 1 | x 1 | y 20", "run 1 seq 2 start ended | x 0 | y 10"});
}

TEST_CASE("csv: what is wrong in a row, with its physical line and its column") {
  CHECK(samples_of("a,b\n1,2\n3\n", {}) == Lines{"4: FILE:3: 1 fields where the header has 2"});
  CHECK(samples_of("t,a,b\r\n0,\"x\r\ny\",1.5\r\n\r\n1,c,z", {{"features", {"t"}}, {"missing", {"1.5"}}}) ==
        Lines{"4: FILE:5: column \"b\": \"z\" is no number; is it to be listed in \"missing\"?"});
  CHECK(samples_of("a,b\n1,2\n3,1.5x\n", {}) ==
        Lines{"4: FILE:3: column \"b\": \"1.5x\" is no number; is it to be listed in \"missing\"?"});
  CHECK(samples_of("a,b,t\n1,2,yesterday\n", {{"time", "t"}}) ==
        Lines{"4: FILE:2: column \"t\": \"yesterday\" is no time"});
}

TEST_CASE("csv: the header is checked before a run, with the nearest name") {
  CHECK(samples_of("delay,temp\n", {{"features", {"dealy", "temp"}}, {"target", {"delay"}}, {"time", "when"}}) ==
        Lines{"FILE has no column \"dealy\"; did you mean \"delay\"? [4]", "FILE has no column \"when\" [4]"});
  CHECK(samples_of("a,b,a\n", {}) == Lines{"FILE has two columns \"a\" [4]"});
  CHECK(samples_of("", {}) == Lines{"FILE is empty; its first row must name the columns [4]"});
  const Bench bench({{"gen0", csv(), {{"path", "/nowhere.csv"}, {"features", {"a"}}, {"target", {"b"}}}}});
  CHECK(rules_of(bench.problems) == Lines{"cannot read /nowhere.csv: No such file or directory [4]"});
}

TEST_CASE("csv: parameters that contradict each other are refused") {
  CHECK(samples_of("a,b\n", {{"target", {"a"}}, {"horizon", 0}}) ==
        Lines{"with horizon 0 the target \"a\" is among its own features; give a horizon of at least 1, or take it out "
              "of one of "
              "them"});
  for (const std::string separator : {"||", "", "\"", "\n", "é"}) {
    CHECK(samples_of("a,b\n", {{"separator", separator}}) ==
          Lines{fmt::format("separator {} must be one ASCII character, no quote and no line end, or \"tab\"",
                            in_quotes(separator))});
  }
  const Bench nameless({{"gen0", csv(), {{"path", ""}, {"features", {"a"}}, {"target", {"b"}}}}});
  CHECK(rules_of(nameless.problems) == Lines{"path is empty; name the CSV file"});
  CHECK(samples_of("a,b\n", {{"features", {"a", "a"}}}) == Lines{"features name a column twice"});
  CHECK(samples_of("a,b\n", {{"features", nlohmann::json::array()}}) == Lines{"features name no column"});
  CHECK(samples_of("a,b,c\n", {{"target", {"b", "c"}}, {"classes", 2}}) ==
        Lines{"classes need a target of one column"});
}

TEST_CASE("csv: rows that are no range are told beside other parameters that are wrong") {
  const nlohmann::json params = {{"path", "x.csv"}, {"features", {"a"}}, {"target", {"b"}},
                                 {"rows", "5"},     {"context", -1},     {"classes", 1 << 25}};
  std::vector<Problem> problems;
  Fields fields({&params, "csv",
                 [](const std::string& key) {
                   return Place{key, key};
                 },
                 [](const std::string&) { return std::string(); }},
                problems);
  csv().fields(fields);
  CHECK(rules_of(problems) == Lines{"csv: \"classes\" must be between 2 and 16777216, not 33554432",
                                    "csv: \"context\" must be at least 0, not -1",
                                    "csv: rows \"5\" are no range; write \"0:300\", \"300:\", \":300\" or \"\""});
}

TEST_CASE("csv: what a message repeats of a file is whole and printable") {
  const std::string field("x\0y\x1b[2J", 7);
  CHECK(samples_of("a,b\n1,2\n3," + field + "\n", {}) ==
        Lines{"4: FILE:3: column \"b\": \"x\\u0000y\\u001b[2J\" is no number; is it to be listed in \"missing\"?"});
}

TEST_CASE("csv: nodes of one file share its rows while they are in use, whatever becomes of the file") {
  const TemporaryFile file(counting(3));
  const nlohmann::json params = {{"path", file.path()}, {"features", {"a"}}, {"target", {"b"}}};
  const Bench bench({{"gen0", csv(), params}}),
      other({{"gen0", csv(), params}}, {.end_rule = "first", .evaluating = true});
  {
    NodeRunner trained(bench, "gen0");
    const std::vector<std::string> before = texts(trained.take(1));
    std::ofstream(file.path()) << counting(9);
    NodeRunner evaluated(other, "gen0");
    CHECK(evaluated.take(100).size() == 2);
    CHECK(before == Lines{"run 0 seq 0 start | x 0 | y 10"});
  }
  NodeRunner later(other, "gen0");
  CHECK(later.take(100).size() == 8);
}

TEST_CASE("csv: the sixteen airlines read to their ends") {
  int targets = 0, streams = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs/data/flights16")) {
    if (entry.path().extension() != ".csv") continue;
    ++streams;
    const Bench bench({{"gen0",
                        csv(),
                        {{"path", entry.path().string()},
                         {"features", {"flights", "dep_delay", "temp", "wind_speed", "precip", "visib"}},
                         {"target", {"dep_delay"}},
                         {"time", "date"},
                         {"rows", "300:"},
                         {"context", 14}}},
                       {"norm0", normalize(), nlohmann::json::object(), {"gen0"}}});
    CHECK(bench.problems.empty());
    NodeRunner gen(bench, "gen0");
    const std::vector<Sample> samples = gen.take(1000);
    CHECK(samples.size() == 79);
    for (const Sample& s : samples) targets += s.tag.weight > 0;
  }
  CHECK(streams == 16);
  CHECK(targets == 963);
}

}  // namespace
}  // namespace lanewise
