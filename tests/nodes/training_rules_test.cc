// What a pipeline must be as a whole, told before anything is started.
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

std::string refused(const std::string& text) {
  return error_of([&] { plans_of(text); });
}

std::string with(std::string text, const std::string& what, const std::string& by) {
  REQUIRE(text.find(what) != std::string::npos);
  return text.replace(text.find(what), what.size(), by);
}

bool tells(const std::string& error, const std::string& rule) {
  return error.starts_with("3: ") && error.find(rule) != std::string::npos;
}

}  // namespace

TEST_CASE("rules: a stream that comes into two lanes is refused, and \"take\" is named") {
  const std::string error = refused(with(Topology{}.text(), R"("from": "gen", "take": 2)", R"("from": "gen")"));
  INFO(error);
  CHECK(tells(error,
              "the stream gen0 comes into lane0 and into lane1; a stream belongs to one lane, once: give the input of "
              "pair a \"take\""));
}

TEST_CASE("rules: a second optimizer or reduction is refused") {
  Topology t;
  t.extra = R"(, { "id": "opt2", "type": "optimizer", "in": [ { "from": "reduce" } ] })";
  const std::string error = refused(t.text());
  INFO(error);
  CHECK(tells(error, "opt2 is a second optimizer beside opt; all lanes train one model, by one optimizer"));
}

TEST_CASE("rules: a node whose output nobody reads is refused, whatever it does") {
  Topology t;
  t.chain = R"( { "id": "win", "repeat": 16, "type": "window", "in": [ { "from": "gen", "take": 1 } ] },)";
  const std::string error = refused(t.text());  // the pair takes gen
  INFO(error);
  CHECK(tells(error, "nobody reads the sample of win0; name it in another node's \"in\", or take it out"));
}

TEST_CASE("rules: a pipeline that trains nothing is refused") {
  const std::string error = refused(R"({ "nodes": [
    { "id": "gen", "repeat": 2, "type": "ar1" },
    { "id": "pair", "type": "pair", "in": [ { "from": "gen" } ] } ], "run": { "steps": 1 } })");
  INFO(error);
  CHECK(tells(error, "the pipeline trains nothing: it needs compute nodes, an allreduce and an optimizer"));
}

TEST_CASE(
    "rules: a window that is longer than its stream is refused where that is known, and ends the run where it is not") {
  Topology t;
  t.source = R"("type": "ar1", "params": { "features": 6, "samples": 5 })";
  t.chain = R"( { "id": "win", "repeat": 16, "type": "window", "in": [ { "from": "gen", "take": 1 } ] },)";
  t.last = "win";
  CHECK(tells(refused(t.text()), "a window of 8 is longer than its stream, which has 5 samples"));

  const TemporaryFolder folder;
  write_text(folder.path() + "/a.csv", "x,y\n1,2\n3,4\n5,6\n7,8\n");
  t.source = fmt::format(R"("type": "csv", "params": {{ "path": "{}/a.csv", "features": ["x"], "target": ["y"] }})",
                         folder.path());
  for (const char* const run : {R"("passes": 2)", R"("steps": 5)"}) {
    t.run = run;
    const Ran ran = train(t.text());
    CHECK(ran.exit() == 4);
    CHECK(ran.reason().find("gave no sample from a whole run of its stream, which has 3 samples") != std::string::npos);
  }
}

TEST_CASE("rules: sizes that no memory holds are refused, also where their product overflows") {
  Topology t;
  t.model = R"("type": "mlp", "hidden": [16777216, 16777216, 16777216])";
  const std::string error = refused(t.text());
  INFO(error);
  CHECK(tells(error, "parameters are more than any memory holds"));
  t.model = R"("type": "mlp", "hidden": [4611686018427387904])";
  CHECK(tells(refused(t.text()), "\"hidden\" must be between 1 and 16777216"));
}
