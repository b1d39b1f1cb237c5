// Files and names as the world has them: CSV dialects, a decimal comma, node names that drawings must survive.
#include <cgraph.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <sstream>

#include "tests/product/pipelines.h"
#include "tests/product/run_command.h"

namespace lanewise {
namespace {

// One csv stream into one lane, with the targets written to predictions.csv in the file's own units.
std::string csv_pipeline(const std::string& csv) {
  return replaced(R"({
    "name": "csv",
    "models": { "net": { "type": "linear" } },
    "nodes": [
      { "id": "gen", "type": "csv", "params": { "path": "CSV", "features": ["t"], "target": ["x"], "horizon": 0 } },
      { "id": "pair", "type": "pair", "in": [ { "from": "gen" } ] },
      { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 1 } ],
        "device": "cpu:*", "params": { "model": "net", "loss": "mse" } },
      { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
      { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "lr": 0.125 } },
      { "id": "seen", "type": "predictions", "in": [ { "from": "lane.prediction" } ] } ],
    "run": { "passes": 1, "dtype": "float64" } })",
                  "CSV", csv);
}

// The targets that a run saw, as predictions.csv has them (column y0).
std::vector<std::string> targets(const std::string& directory) {
  std::vector<std::string> list;
  for (const std::string& line : lines_of(read_text(directory + "/predictions.csv"))) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    list.push_back(fields.at(7));
  }
  REQUIRE(!list.empty());
  list.erase(list.begin());
  return list;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("csv: CRLF, a quoted newline, a blank line and no end of line give the samples that stand there") {
  const TempDir dir;
  const Names expected = {"1.5", "2.5"};
  for (const std::string& text : {std::string("t,name,x\r\n0,\"a\r\nb\",1.5\r\n\r\n1,c,2.5"),
                                  std::string("t,name,x\r\r\n0,a,1.5\r\r\n1,c,2.5\r\r\n"),
                                  std::string("t,name,x\n0,\"one \"\"two\"\" three\",1.5\n1,c,2.5\n")}) {
    static int runs = 0;
    const std::string name = fmt::format("out{}", ++runs);
    dir.write("data.csv", text);
    const Ran ran = run_in(dir, name, {dir.write("csv.json", csv_pipeline("data.csv"))});
    INFO(ran.finished.err);
    REQUIRE(ran.finished.exit == 0);
    CHECK(targets(dir.path(name)) == expected);
  }
}

TEST_CASE("csv: a field that is no number is exit 4 at its physical line") {
  const TempDir dir;
  dir.write("data.csv", "t,name,x\r\n0,\"a\r\nb\",1.5\r\n\r\n1,c,2.5x");
  const Ran ran = run_in(dir, "out", {dir.write("csv.json", csv_pipeline("data.csv"))});
  CHECK(ran.finished.exit == 4);
  CHECK_MESSAGE(ran.finished.err.find("data.csv:5") != std::string::npos, ran.finished.err);
}

TEST_CASE("locale: a decimal comma changes no number that is read or written") {
  const TempDir dir;
  const std::string locale = dir.path("de_DE.UTF-8");
  run_program({"/usr/bin/localedef", "-i", "de_DE", "-f", "UTF-8", locale});
  const std::vector<std::string> german = {"LOCPATH=" + dir.path(), "LC_ALL=de_DE.UTF-8", "LANG=de_DE.UTF-8"};
  REQUIRE(run_program({"/usr/bin/locale", "decimal_point"}, {.environment = german}).out == ",\n");

  dir.write("data.csv", "t,x\n0,1.5\n1,3.14\n");
  const std::string file = dir.write("csv.json", csv_pipeline("data.csv"));
  const Ran here = run_in(dir, "c", {file}, {.environment = {"LC_ALL=C"}});
  const Ran there = run_in(dir, "de", {file}, {.environment = german});
  INFO(there.finished.err);
  REQUIRE(here.finished.exit == 0);
  REQUIRE(there.finished.exit == 0);
  CHECK(targets(dir.path("de")) == Names{"1.5", "3.14"});
  for (const char* name : {"metrics.jsonl", "predictions.csv", "manifest.json"}) {
    CAPTURE(name);
    CHECK(read_text(dir.path("de/") + name) == read_text(dir.path("c/") + name));
  }
  CHECK(there.report.at("weights_sha256") == here.report.at("weights_sha256"));
  for (const char* command : {"check", "graph"}) {
    CHECK(lanewise_command({command, file}, {.environment = german}).out ==
          lanewise_command({command, file}, {.environment = {"LC_ALL=C"}}).out);
  }
}

TEST_CASE("graph: names of every kind come back from DOT and JSON as they were") {
  const Names odd = {"6\"", "a\\", "\\\\", "::", "A\\A", "x -> y", "\xc3\xa9", "node", "</script>"};
  nlohmann::json pipeline =
      nlohmann::json::parse(R"({ "models": { "net": { "type": "mlp" } }, "nodes": [], "run": { "steps": 1 } })");
  nlohmann::json joined = nlohmann::json::array();
  for (const std::string& name : odd) {
    pipeline["nodes"].push_back({{"id", name}, {"type", "sine"}});
    joined.push_back({{"from", name}});
  }
  pipeline["nodes"].push_back({{"id", "pair"}, {"type", "pair"}, {"in", joined}});
  pipeline["nodes"].push_back({{"id", "lane"},
                               {"type", "compute"},
                               {"device", "cpu:*"},
                               {"params", {{"model", "net"}}},
                               {"in", {{{"from", "pair"}}, {{"from", "opt"}, {"initial", 1}}}}});
  pipeline["nodes"].push_back({{"id", "reduce"}, {"type", "allreduce"}, {"in", {{{"from", "lane"}}}}});
  pipeline["nodes"].push_back({{"id", "opt"}, {"type", "optimizer"}, {"in", {{{"from", "reduce"}}}}});
  const std::string text = pipeline.dump();

  const Finished json = lanewise_command({"graph", "-", "--json"}, {.input = text});
  INFO(json.err);
  REQUIRE(json.exit == 0);
  const nlohmann::json drawn = nlohmann::json::parse(json.out);
  std::set<std::string> expected(odd.begin(), odd.end()), in_json, in_dot;
  expected.insert({"pair", "lane", "reduce", "opt"});
  for (const auto& node : drawn.at("nodes")) in_json.insert(node.at("id").get<std::string>());
  CHECK((in_json == expected));

  const Finished dot = lanewise_command({"graph", "-", "--format", "dot"}, {.input = text});
  Agraph_t* graph = agmemread(dot.out.c_str());
  REQUIRE(graph != nullptr);
  for (Agnode_t* node = agfstnode(graph); node != nullptr; node = agnxtnode(graph, node)) in_dot.insert(agnameof(node));
  CHECK((in_dot == expected));
  CHECK(agnedges(graph) == static_cast<int>(drawn.at("edges").size()));
  CHECK(agnedges(graph) == static_cast<int>(odd.size()) + 4);
  agclose(graph);

  // What cannot be shown is refused, with its place.
  for (const char* name : {"", "a\nb", "a\x1b"}) {
    pipeline["nodes"][0]["id"] = name;
    const Finished refused = lanewise_command({"graph", "-"}, {.input = pipeline.dump()});
    CHECK(refused.exit == 3);
    CHECK(refused.err.find("/nodes/0/id") != std::string::npos);
  }
}

}  // namespace lanewise
