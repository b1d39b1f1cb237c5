#include "graph/plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "graph/spec.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

Plans plans_of(const std::string& text, const std::string& file = "configs/f.json") {
  return plan_pipeline(text, file, test_registry(), {});
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  REQUIRE(text.find(what) != std::string::npos);
  return text.replace(text.find(what), what.size(), by);
}

TEST_CASE("plan: two plans of one text are equal, and the folder of the file is not part of them") {
  const Plans a = plans_of(kSixteen), b = plans_of(kSixteen, "/elsewhere/f.json");
  CHECK(a.train.digest.size() == 64);
  CHECK(a.train.digest == b.train.digest);
  CHECK(a.train.expanded.dump() == b.train.expanded.dump());
  CHECK(a.evaluate->digest == b.evaluate->digest);
}

TEST_CASE("plan: comments, spaces and written-out defaults do not change the digest; everything else does") {
  const std::string digest = plans_of(kSixteen).train.digest;
  CHECK(plans_of(replaced(kSixteen, "// the whole thing", "// other")).train.digest == digest);
  CHECK(plans_of(replaced(kSixteen, "\"rows\": \"0:80\"", "\"rows\": \"0:80\", \"features\": 4")).train.digest ==
        digest);
  CHECK(plans_of(replaced(kSixteen, "\"0:80\"", "\"0:81\"")).train.digest != digest);
  CHECK(plans_of(replaced(kSixteen, "\"80:\"", "\"81:\"")).train.digest != digest);
  CHECK(plans_of(replaced(kSixteen, "\"capacity\": 4", "\"capacity\": 5")).train.digest != digest);
  CHECK(plans_of(replaced(kSixteen, "[8, 4]", "[8, 5]")).train.digest != digest);
  CHECK(plans_of(replaced(kSixteen, "\"seed\": 7 },\n", "\"seed\": 8 },\n")).train.digest != digest);
}

TEST_CASE("plan: the expanded pipeline is a pipeline, whose plan is the same") {
  const Plans plans = plans_of(kSixteen);
  const Plans again = plans_of(plans.train.expanded.dump(2));
  CHECK(again.train.expanded.dump() == plans.train.expanded.dump());
  CHECK(again.train.digest == plans.train.digest);
  CHECK(again.evaluate->digest == plans.evaluate->digest);
}

TEST_CASE("plan: run has its defaults, and the end rule follows from passes") {
  const RunSettings run = plans_of(kSixteen).train.run;
  CHECK(run.passes == 5);
  CHECK_FALSE(run.steps);
  CHECK(run.seed == 7);
  CHECK(run.dtype == "float32");
  CHECK(run.threads == 1);
  CHECK(run.end_rule() == "restart");
  CHECK(plans_of(replaced(kSixteen, "\"passes\": 5", "\"steps\": 5")).train.end_rule == "first");
  CHECK(plans_of(replaced(kSixteen, "\"passes\": 5", "\"steps\": 5, \"on_end\": \"mask\"")).train.end_rule == "mask");
}

TEST_CASE("plan: shapes and facts flow along the edges, feedback aside, and are not worked out when not asked for") {
  const Plan plan = plans_of(kSixteen).train;
  CHECK(plan.find("norm3")->signatures[0].text() == "x [4], y [1]");
  CHECK(plan.find("lane7")->signatures[0].text() == "60 parameters");
  CHECK(plan.find("opt")->signatures[0].text() == "60 parameters");
  CHECK(plan.find("lane7")->facts.dump() == R"({"parameters":60})");
  PlanOptions options;
  options.infer = false;
  CHECK(plan_pipeline(kSixteen, "f", test_registry(), options).train.find("norm3")->signatures[0].text() ==
        "unknown until run");
}

TEST_CASE("plan: nodes are found by id and role, models by name") {
  const Plan plan = plans_of(kSixteen).train;
  CHECK(plan.find("gen15")->instance == 15);
  CHECK(plan.find("gen15")->base == "gen");
  CHECK(plan.find("gen16") == nullptr);
  CHECK(plan.with_role(Role::kSource).size() == 16);
  CHECK(plan.with_role(Role::kSink).empty());
  CHECK(plan.model("net").type == "mlp");
  CHECK(plan.model("net").params.dump() == R"({"hidden":[8,4],"layers":1})");
  CHECK_THROWS_AS(plan.model("none"), Error);
}

TEST_CASE("plan: a place in the file is kept for every node and given parameter") {
  const Plan plan = plans_of(kSixteen).train;
  CHECK(plan.find("gen3")->place.at == "configs/f.json:5:5");
  CHECK(plan.find("gen3")->place.pointer == "/nodes/0");
  CHECK(plan.find("gen3")->param_places.at("seed").pointer == "/nodes/0/each/seed");
  CHECK(plan.find("gen3")->param_places.at("rows").at == "configs/f.json:5:86");
  CHECK(plan.find("gen3")->param_places.count("features") == 0);
}

TEST_CASE("plan: problems found by node types of many instances are told once a place") {
  const std::string text = replaced(kSixteen, "\"model\": \"net\"", "\"model\": \"nett\"");
  try {
    plans_of(text);
    FAIL("accepted");
  } catch (const PipelineError& error) {
    REQUIRE(error.problems().size() == 1);
    CHECK(error.problems()[0].place.pointer == "/nodes/3/params/model");
    CHECK(error.problems()[0].rule == "no model is named \"nett\"; did you mean \"net\"?");
  }
}

TEST_CASE("plan: a problem that only the evaluation has says so") {
  const std::string text = replaced(kSixteen, "\"gen3.step\": 0.5", "\"gen3.features\": 3");
  try {
    plans_of(text);
    FAIL("accepted");
  } catch (const PipelineError& error) {
    REQUIRE(error.problems().size() == 1);
    CHECK(error.problems()[0].rule == "in the evaluation: \"pair1\" cannot join [4] of gen2 with [3] of gen3");
  }
}

TEST_CASE("plan: an error thrown by a node type is a problem at its node") {
  Registry registry = test_registry();
  registry.nodes[0].infer = [](InferContext&) { throw Error(Exit::kData, "no such data"); };
  try {
    plan_pipeline(kSixteen, "f", registry, {});
    FAIL("accepted");
  } catch (const PipelineError& error) {
    CHECK(error.exit() == Exit::kData);
    CHECK(std::string(error.what()) == "f:5:5  /nodes/0\n  no such data\n1 problem; nothing was started");
  }
}

TEST_CASE("plan: 1,024 streams in 512 lanes are planned") {
  std::string text = replaced(kSixteen, "\"repeat\": 16", "\"repeat\": 1024");
  text = replaced(text, "\"repeat\": 16", "\"repeat\": 1024");
  text = replaced(text, "\"repeat\": 8", "\"repeat\": 512");
  text = replaced(text, "\"repeat\": 8", "\"repeat\": 512");
  const Plans plans = plans_of(text);
  CHECK(plans.train.nodes.size() == 1024 * 2 + 512 * 2 + 2);
  CHECK(plans.train.edges.size() == 1024 * 2 + 512 * 3 + 1);
  CHECK(plans.train.find("pair511")->signatures[0].streams == std::vector<std::string>{"gen1022", "gen1023"});
}

}  // namespace
}  // namespace lanewise
