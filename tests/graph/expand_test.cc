#include "graph/expand.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "graph/spec.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

Plan plan_of(const std::string& text, int gpus = 0, int hosts = 1) {
  PlanOptions options;
  options.gpus = gpus;
  options.hosts = hosts;
  return plan_pipeline(text, "f", test_registry(), options).train;
}

// "gen0 > norm0.sample (2)", one edge a line.
std::string edges_of(const Plan& plan) {
  std::string text;
  for (const PlanEdge& edge : plan.edges) {
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    text += fmt::format("{}{} > {}.{} ({}{})\n", from.id,
                        edge.from_port == 0 ? "" : "." + from.type->outputs[edge.from_port].name, to.id,
                        to.type->inputs[edge.to_port].name, edge.capacity, edge.initial > 0 ? ", initial" : "");
  }
  return text;
}

std::string ids_of(const Plan& plan) {
  std::string text;
  for (const PlanNode& node : plan.nodes) text += (text.empty() ? "" : " ") + node.id;
  return text;
}

std::string devices_of(const Plan& plan) {
  std::string text;
  for (const int i : plan.with_role(Role::kCompute)) text += (text.empty() ? "" : " ") + plan.nodes[i].device;
  return text;
}

// Lanes "a" and "b", so many of each, on the devices given.
std::string lanes(int a, const std::string& device_a, int b, const std::string& device_b) {
  const auto lane = [](const std::string& id, int n, const std::string& device) {
    return fmt::format(
        R"({{ "id": "{}", "repeat": {}, "type": "compute", "in": [ {{ "from": "pair" }}, {{ "from": "opt", "initial": 1 }} ],
      "params": {{ "model": "net" }}, "device": "{}" }},)",
        id, n, device);
  };
  return R"({ "models": { "net": { "type": "mlp" } }, "nodes": [ { "id": "gen", "type": "count" },
    { "id": "pair", "type": "pair", "in": [ { "from": "gen" } ] },)" +
         lane("a", a, device_a) + lane("b", b, device_b) +
         R"({ "id": "reduce", "type": "reduce", "in": [ { "from": "a" }, { "from": "b" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ], "run": { "steps": 1 } })";
}

TEST_CASE("expand: repeat, take and the order of ports make the edges, whatever the order of the nodes in the file") {
  const Plan plan = plan_of(R"({
    "models": { "net": { "type": "mlp" } },
    "nodes": [
      { "id": "log", "type": "log", "in": [ { "from": "lane.prediction", "capacity": 9 }, { "from": "lane1.prediction" } ] },
      { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] },
      { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
      { "id": "lane", "repeat": 2, "type": "compute", "in": [ { "from": "opt", "port": "weights", "initial": 1 }, { "from": "pair", "take": 1 } ], "params": { "model": "net" } },
      { "id": "pair", "repeat": 2, "type": "pair", "in": [ { "from": "solo" }, { "from": "gen", "take": 2, "capacity": 4 } ] },
      { "id": "gen", "repeat": 3, "type": "count" },
      { "id": "solo", "repeat": 1, "type": "count" } ],
    "run": { "steps": 1 } })");
  CHECK(ids_of(plan) == "gen0 gen1 gen2 solo0 pair0 pair1 lane0 lane1 log reduce opt");
  CHECK(edges_of(plan) ==
        "solo0 > pair0.samples (2)\n"
        "gen0 > pair0.samples (4)\n"
        "gen1 > pair0.samples (4)\n"
        "solo0 > pair1.samples (2)\n"
        "gen2 > pair1.samples (4)\n"
        "pair0 > lane0.batch (2)\n"
        "opt > lane0.weights (2, initial)\n"
        "pair1 > lane1.batch (2)\n"
        "opt > lane1.weights (2, initial)\n"
        "lane0.prediction > log.predictions (9)\n"
        "lane1.prediction > log.predictions (9)\n"
        "lane1.prediction > log.predictions (2)\n"
        "lane0 > reduce.gradients (2)\n"
        "lane1 > reduce.gradients (2)\n"
        "reduce > opt.reduced (2)\n");
  CHECK(plan.find("pair1")->signatures[0].streams == std::vector<std::string>{"solo0", "gen2"});
}

TEST_CASE("expand: streams stay in their natural order, beyond ten too") {
  const Plan plan = plan_of(kSixteen);
  CHECK(ids_of(plan).starts_with(
      "gen0 gen1 gen2 gen3 gen4 gen5 gen6 gen7 gen8 gen9 gen10 gen11 gen12 gen13 gen14 gen15 norm0 "));
  CHECK(plan.find("pair5")->signatures[0].streams == std::vector<std::string>{"gen10", "gen11"});
}

TEST_CASE("expand: each gives one value an instance, lists too, or counts up from a number") {
  const Plan plan = plan_of(R"({ "nodes": [
    { "id": "gen", "repeat": 3, "type": "count", "each": { "seed": 18446744073709551613, "length": [5, null, 7], "step": -1.0, "rows": ["a", "b", "c"], "columns": [["x"], [], ["y", "z"]], "features": 1 } },
    { "id": "one", "repeat": 1, "type": "count", "each": { "features": [9] } },
    { "id": "pair", "type": "pair", "in": [ { "from": "one" } ] },
    { "id": "norm", "repeat": 3, "type": "scale", "in": [ { "from": "gen", "take": 1 } ] } ], "run": { "steps": 1 } })");
  CHECK(plan.find("gen2")->params.dump() ==
        R"({"columns":["y","z"],"features":3,"length":7,"path":"","rows":"c","seed":18446744073709551615,"step":1.0})");
  CHECK(plan.find("gen1")->params.at("length").is_null());
  CHECK(plan.find("gen1")->params.at("step") == 0.0);
  CHECK(plan.find("one0")->params.at("features") == 9);
}

TEST_CASE("expand: lane i of L goes to GPU floor(i * G / L), on the host to a virtual device of its own") {
  CHECK(devices_of(plan_of(lanes(3, "auto:*", 2, "auto:*"), 2)) == "cuda:0 cuda:0 cuda:0 cuda:1 cuda:1");
  CHECK(devices_of(plan_of(lanes(2, "cuda:*", 1, "cuda:7"), 8)) == "cuda:0 cuda:4 cuda:7");
  CHECK(devices_of(plan_of(lanes(3, "auto:*", 2, "cpu:*"))) == "cpu:0 cpu:1 cpu:2 cpu:3 cpu:4");
  CHECK(devices_of(plan_of(lanes(2, "cpu:5", 2, "cpu:*"))) == "cpu:5 cpu:5 cpu:0 cpu:1");
  CHECK(devices_of(plan_of(lanes(1, "cuda:00", 1, "cuda:05"))) == "cuda:0 cuda:5");
  CHECK(devices_of(plan_of(lanes(1, "cpu:00", 1, "cpu:05"))) == "cpu:0 cpu:5");
  CHECK(plan_of(lanes(1, "cpu:*", 1, "cpu:*")).find("gen")->device == "");
}

TEST_CASE("expand: lanes are all on GPUs, or all on the host") {
  const auto refusal = [](const std::string& text, int gpus = 0) {
    try {
      plan_of(text, gpus);
    } catch (const PipelineError& error) {
      CHECK(error.exit() == Exit::kPipeline);
      return error.problems().at(0).place.pointer + " " + error.problems().at(0).rule;
    }
    return std::string("accepted");
  };
  const std::string rule = "lanes that train together are all on GPUs (\"cuda:*\"), or all on the host (\"cpu:*\")";
  CHECK(refusal(lanes(2, "cuda:*", 2, "cpu:*")) == "/nodes/3/device a0 is on a GPU and b0 on the host; " + rule);
  CHECK(refusal(lanes(1, "cpu:3", 2, "auto:*"), 8) == "/nodes/3/device b0 is on a GPU and a0 on the host; " + rule);
  CHECK(refusal(lanes(1, "cpu:3", 2, "auto:*"), 0) == "accepted");
}

TEST_CASE("expand: each of several hosts has its lanes on its own GPUs") {
  CHECK(devices_of(plan_of(lanes(4, "cuda:*", 4, "cuda:*"), 4, 2)) ==
        "cuda:0 cuda:1 cuda:2 cuda:3 cuda:0 cuda:1 cuda:2 cuda:3");
  CHECK(devices_of(plan_of(lanes(3, "cuda:*", 1, "cuda:*"), 1, 2)) == "cuda:0 cuda:0 cuda:0 cuda:0");
  CHECK(devices_of(plan_of(lanes(1, "cuda:*", 1, "cuda:*"), 8, 4)) == "cuda:0 cuda:0");
}

TEST_CASE(
    "expand: the evaluation has no reduction, optimizer, what hangs off them, or feedback, and scores every lane") {
  std::string text = kSixteen;
  text.replace(text.find("\"from\": \"reduce\""), 16, "\"from\": \"clip\"");
  text.replace(text.find("{ \"id\": \"opt\""), 1,
               R"({ "id": "clip", "type": "clip", "in": [ { "from": "reduce" } ] },
                  { "id": "log", "type": "log", "in": [ { "from": "lane.prediction" } ] }, {)");
  const Plans plans = plan_pipeline(text, "f", test_registry(), {});
  REQUIRE(plans.evaluate);
  const Plan& plan = *plans.evaluate;
  CHECK(ids_of(plan).find(
            "norm15 pair0 pair1 pair2 pair3 pair4 pair5 pair6 pair7 lane0 lane1 lane2 lane3 lane4 lane5 lane6 lane7 "
            "log score") != std::string::npos);
  CHECK(edges_of(plan).find("pair7 > lane7.batch (2)\nlane0.prediction > log.predictions (2)\n") != std::string::npos);
  CHECK(
      edges_of(plan).ends_with("lane6.prediction > score.predictions (2)\nlane7.prediction > score.predictions (2)\n"));
  CHECK(edges_of(plan).find("opt") == std::string::npos);
  CHECK(plan.evaluating);
  CHECK(plan.end_rule == "mask");
  CHECK(plans.train.end_rule == "restart");
  CHECK_FALSE(plans.train.evaluating);
  CHECK(plans.train.digest != plan.digest);
}

TEST_CASE("expand: there is no plan of the evaluation without a section, or without a type to score") {
  std::string text = kSixteen;
  CHECK_FALSE(plan_pipeline(text, "f", test_registry(/*with_score=*/false), {}).evaluate);
  text.replace(text.find("\"evaluate\""), std::string::npos, "\"$schema\": \"schema.json\" }");
  CHECK_FALSE(plan_pipeline(text, "f", test_registry(), {}).evaluate);
}

TEST_CASE("expand: more nodes or edges than a plan may have are refused, not made") {
  const auto rule = [](const std::string& nodes) {
    try {
      plan_of("{ \"nodes\": [" + nodes + "], \"run\": { \"steps\": 1 } }");
    } catch (const PipelineError& error) {
      return error.problems().at(0).rule;
    }
    return std::string("accepted");
  };
  CHECK(rule(R"({ "id": "a", "repeat": 65536, "type": "count" }, { "id": "b", "repeat": 65536, "type": "count" })") ==
        "more than 100000 nodes");
  CHECK(rule(R"({ "id": "a", "repeat": 40000, "type": "count" },
                { "id": "b", "repeat": 40000, "type": "pair", "in": [ { "from": "a" } ] })") ==
        "more than 1000000 edges");
}

}  // namespace
}  // namespace lanewise
