#include "graph/descriptor.h"

#include <doctest/doctest.h>

#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

Types test_types() {
  const Registry& registry = test_registry();
  return {registry.nodes, registry.models, registry.losses};
}

// What reading these parameters gives: the values in force, or the problems.
std::string read(const NodeType& type, const Json& params) {
  std::vector<Problem> problems;
  Fields fields({&params, type.name,
                 [](const std::string& key) {
                   return Place{"file", key};
                 },
                 [](const std::string&) { return std::string("folder"); }},
                problems);
  if (type.fields) type.fields(fields);
  fields.finish();
  if (problems.empty()) return fields.resolved().dump() + fields.written().dump();
  std::string text;
  for (const Problem& problem : problems) text += problem.place.pointer + ": " + problem.rule + "\n";
  return text;
}

// What is said of a descriptor file.
std::string refusal(const std::string& text) {
  std::vector<Problem> problems;
  const Types types = read_descriptors(text, "mine.json", problems);
  CHECK(types.nodes.empty());
  return problems.empty() ? "accepted" : PipelineError(problems).what();
}

TEST_CASE("descriptor: types that are read from what they tell tell the same") {
  const auto told = descriptors_of(test_types());
  std::vector<Problem> problems;
  const Types types = read_descriptors(told.dump(), "mine.json", problems);
  REQUIRE(problems.empty());
  CHECK(types.nodes.size() == test_registry().nodes.size());
  CHECK(types.models.size() == 1);
  CHECK(types.losses.size() == 2);
  CHECK(descriptors_of(types) == told);
}

TEST_CASE("descriptor: parameters are read by a descriptor as by the type itself") {
  std::vector<Problem> problems;
  const Types types = read_descriptors(descriptors_of(test_types()).dump(), "mine.json", problems);
  const std::vector<Json> cases = {
      Json::object(),
      {{"features", 5},
       {"length", nullptr},
       {"seed", 18446744073709551615u},
       {"path", "a.csv"},
       {"columns", {"a", "b"}}},
      {{"features", 0}, {"length", 0}, {"seed", -1}, {"step", 1.5}, {"rows", 5}, {"columns", {1}}, {"color", 1}},
      {{"period", 3}, {"schedule", {{"warmup", 2}}}, {"levels", {0.5}}},
      {{"period", 0}, {"schedule", {{"warmup", -2}, {"wramup", 2}}}, {"levels", {-0.5, true}}},
      {{"model", "net"}, {"loss", "hubre"}},
      {{"factor", true}, {"centre", 1}},
      {{"name", "adam"}, {"lr", 0}}};
  int compared = 0;
  for (std::size_t i = 0; i < types.nodes.size(); ++i) {
    CAPTURE(types.nodes[i].name);
    for (const Json& params : cases) {
      CHECK(read(types.nodes[i], params) == read(test_registry().nodes[i], params));
      ++compared;
    }
  }
  CHECK(compared == 80);
}

TEST_CASE("descriptor: what is wrong in the file is told with its place") {
  CHECK(refusal("{}") ==
        "mine.json:1:1\n"
        "  the file must be a list of types\n"
        "1 problem; nothing was started");
  CHECK(refusal(R"([ { "kind": "node", "nmae": "a", "help": "h" },
  { "kind": "node type", "name": "b", "help": "h", "shapes": "same", "outputs": [ { "name": "o", "carries": "smaple" } ],
    "parameters": [ { "name": "p", "type": "nubmer", "help": "h" }, { "name": "q", "type": "integer", "help": "h" },
                    { "name": "q", "type": "text", "help": "h", "default": 3 }, 5 ] } ])") ==
        "mine.json:1:3  /0\n"
        "  type needs the key \"name\"\n"
        "mine.json:1:5  /0/kind\n"
        "  type: \"kind\" must be one of node type, model, loss, not \"node\"\n"
        "mine.json:1:21  /0/nmae\n"
        "  type has no key \"nmae\"; did you mean \"name\"?\n"
        "mine.json:2:52  /1/shapes\n"
        "  \"same\" needs an input whose shapes the outputs can have\n"
        "mine.json:2:98  /1/outputs/0/carries\n"
        "  port: \"carries\" must be one of sample, batch, prediction, gradient, reduced, weights, step, not "
        "\"smaple\"; did "
        "you mean \"sample\"?\n"
        "mine.json:3:36  /1/parameters/0/type\n"
        "  \"p\": no parameter is a \"nubmer\"\n"
        "mine.json:3:69  /1/parameters/1/default\n"
        "  \"q\": the default does not suit its type: parameter: \"q\" must be an integer, not null\n"
        "mine.json:4:21  /1/parameters/2\n"
        "  \"q\" is there twice\n"
        "mine.json:4:65  /1/parameters/2/default\n"
        "  \"q\": the default does not suit its type: parameter: \"q\" must be text, not 3\n"
        "mine.json:4:81  /1/parameters/3\n"
        "  parameter must be an object, not 5\n"
        "10 problems; nothing was started");
}

TEST_CASE("descriptor: differences are told by kind, name and parameter") {
  Json before = descriptors_of(test_types()), now = before;
  CHECK(descriptor_differences(before, now).empty());
  now[0]["help"] = "counts down";
  now[0]["parameters"][0]["default"] = 5;
  now.erase(1);
  CHECK(descriptor_differences(before, now) ==
        std::vector<std::string>{"node type count.help: \"counts up\" -> \"counts down\"",
                                 "node type count.parameters.features.default: 4 -> 5",
                                 "node type wave: not in the library"});
}

}  // namespace
}  // namespace lanewise
