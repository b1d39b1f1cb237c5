#include "graph/spec.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

// What the command prints for a pipeline that is refused.
std::string refusal(const std::string& text, const PlanOptions& options = {}) {
  try {
    plan_pipeline(text, "configs/mine.json", test_registry(), options);
  } catch (const PipelineError& error) {
    return error.what();
  }
  return "accepted";
}

PlanOptions with(std::vector<Override> overrides) {
  PlanOptions options;
  options.overrides = std::move(overrides);
  return options;
}
Override set(const std::string& text) { return {Override::Kind::kSet, text}; }
Override swap(const std::string& text) { return {Override::Kind::kSwap, text}; }

struct Broken {
  const char* name;
  const char* text;
  PlanOptions options = {};
};

// Each with several things wrong; the whole message is in golden/broken_NAME.txt.
const std::vector<Broken>& broken() {
  static const std::vector<Broken> cases{
      {"syntax",
       "{ \"nodes\": [\n  { \"id\": \"gen\", \"type\": \"count\", \"nodes\": 1, \"nodes\": 2 },\n  { \"id\" \"x\" } ] "
       "}"},
      {"keys", R"({ "nmae": "x",
  "nodes": [
    { "id": "gen", "tpye": "count", "type": "count" },
    { "id": "win", "type": "scale", "in": [ { "form": "gen", "from": "gen", "capacty": 3 } ], "parms": {} } ],
  "run": { "stpes": 5, "metrics": { "evry": 1 } },
  "evaluate": { "evry": 1 } })"},
      {"types", R"({
  "nodes": [
    { "id": "gen", "repeat": 2.5, "type": "count", "params": { "features": 3.7, "seed": -1, "rows": 5, "columns": ["a", 7] } },
    { "id": 5, "type": "scale", "in": [ { "from": "gen", "take": true, "capacity": 70000 } ], "params": { "factor": "2" } },
    { "id": "s", "type": "scale", "in": { "from": "gen" }, "params": [], "each": 4 },
    7 ],
  "run": { "steps": 0, "minutes": -1, "seed": 18446744073709551616, "dtype": "float16", "threads": 5000, "stall_s": 0 } })"},
      {"sections", R"({ "name": "a/b", "models": [], "nodes": {}, "run": 5, "evaluate": [] })"},
      {"nothing", "{}"},
      {"ids", R"({
  "nodes": [
    { "id": "gen", "repeat": 4, "type": "count" },
    { "id": "gen3", "type": "count" },
    { "id": "gen", "type": "count" },
    { "id": "run", "type": "count" },
    { "id": "a.b", "type": "count" },
    { "id": "", "type": "count" },
    { "id": "two\nlines", "type": "count" },
    { "type": "count" } ],
  "run": { "steps": 1 } })"},
      {"names", R"({
  "models": { "net": { "type": "mpl" }, "big": { "type": "mlp", "hiden": [3] }, "odd": { "hidden": [1] }, "zero": { "type": "mlp", "hidden": [4, 0] } },
  "nodes": [
    { "id": "gen", "repeat": 2, "type": "cuont" },
    { "id": "wave", "type": "wave", "params": { "perod": 5, "schedule": { "warmpu": 3 } } },
    { "id": "norm", "type": "scale", "in": [ { "from": "wvae" } ] },
    { "id": "more", "type": "scale", "in": [ { "from": "gen7" } ] },
    { "id": "in", "type": "score", "in": [ { "from": "wave" } ] } ],
  "run": { "steps": 1 } })"},
      {"ports", R"({
  "nodes": [
    { "id": "gen", "repeat": 4, "type": "count" },
    { "id": "one", "type": "scale", "in": [ { "from": "gen" } ] },
    { "id": "two", "type": "scale", "in": [ { "from": "gen0" }, { "from": "gen1" } ] },
    { "id": "none", "type": "scale" },
    { "id": "pair", "type": "pair", "in": [ { "from": "gen", "port": "sample" } ] },
    { "id": "lane", "type": "compute", "in": [ { "from": "gen0" } ], "params": { "model": "net" } },
    { "id": "log", "type": "log", "in": [ { "from": "lane" }, { "from": "lane.predicton" }, { "from": "log" } ] },
    { "id": "src", "type": "count", "in": [ { "from": "gen" } ] },
    { "id": "dup", "type": "scale", "in": [ { "from": "gen2", "port": "sample" }, { "from": "gen3", "port": "sample" } ] } ],
  "run": { "steps": 1 } })"},
      {"take", R"({
  "nodes": [
    { "id": "gen", "repeat": 14, "type": "count" },
    { "id": "pair", "repeat": 8, "type": "pair", "in": [ { "from": "gen", "take": 2 } ] },
    { "id": "norm", "repeat": 3, "type": "scale", "in": [ { "from": "gen", "take": 2 } ] },
    { "id": "only", "repeat": 2, "type": "scale", "in": [ { "from": "gen3", "take": 1 } ] },
    { "id": "far", "repeat": 3, "type": "scale", "in": [ { "from": "gen", "take": 1000000 } ] } ],
  "run": { "steps": 1 } })"},
      {"unread", R"({
  "nodes": [
    { "id": "gen", "repeat": 16, "type": "count" },
    { "id": "norm", "repeat": 16, "type": "scale", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "lost", "type": "count" },
    { "id": "half", "repeat": 2, "type": "count" },
    { "id": "pair", "repeat": 4, "type": "pair", "in": [ { "from": "norm", "take": 2 }, { "from": "half1" } ] } ],
  "run": { "steps": 1 } })"},
      {"cycles", R"({
  "nodes": [
    { "id": "gen", "type": "count" },
    { "id": "lane", "type": "compute", "in": [ { "from": "gen2" }, { "from": "opt" } ], "params": { "model": "net" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] },
    { "id": "a", "type": "scale", "in": [ { "from": "b" } ] },
    { "id": "b", "type": "scale", "in": [ { "from": "c" } ] },
    { "id": "c", "type": "scale", "in": [ { "from": "a" } ] },
    { "id": "self", "type": "scale", "in": [ { "from": "self" } ] } ],
  "run": { "steps": 1 } })"},
      {"initial", R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "gen", "type": "count" },
    { "id": "pair", "type": "pair", "in": [ { "from": "gen", "initial": 1 } ] },
    { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 3 } ], "params": { "model": "net" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane", "initial": -1 } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
  "run": { "steps": 1 } })"},
      {"devices", R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "gen", "repeat": 2, "type": "count", "device": "cpu:0" },
    { "id": "pair", "repeat": 2, "type": "pair", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "lane", "repeat": 2, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" }, "device": "gpu:0" },
    { "id": "far", "type": "compute", "in": [ { "from": "pair0" }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" }, "device": "cpu:9999" },
    { "id": "auto", "type": "compute", "in": [ { "from": "pair0" }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" }, "device": "auto:1" },
    { "id": "cuda", "type": "compute", "in": [ { "from": "pair0" }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" }, "device": "cuda:*" },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" }, { "from": "far" }, { "from": "auto" }, { "from": "cuda" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
  "run": { "steps": 1 } })"},
      {"each", R"({
  "nodes": [
    { "id": "gen", "repeat": 3, "type": "count", "each": { "seed": 18446744073709551614, "rows": ["0:1", 5, "2:3"], "features": [1, 2],
        "step": "x", "columns": [["a"], "b", ["c", 3]], "sed": 1, "length": [0, 1, 2] } },
    { "id": "norm", "repeat": 3, "type": "scale", "in": [ { "from": "gen", "take": 1 } ], "params": { "factor": 2 }, "each": { "factor": [1, 2, 3] } } ],
  "run": { "steps": 1 } })"},
      {"evaluate", R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "gen", "type": "count", "params": { "length": 5 } },
    { "id": "pair", "type": "pair", "in": [ { "from": "gen" } ] },
    { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] },
    { "id": "score", "type": "scale", "in": [ { "from": "gen" } ] } ],
  "run": { "passes": 2, "on_end": "first" },
  "evaluate": { "every": 0, "set": { "gen.rowz": "1:", "gne.rows": "1:", "rows": 3, "gen.features": 0, "gen.step": "x" } } })"},
      {"shapes", R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "gen", "repeat": 4, "type": "count", "each": { "features": [3, 4, 3, 5] } },
    { "id": "pair", "repeat": 2, "type": "pair", "in": [ { "from": "gen", "take": 2 } ] },
    { "id": "extra", "type": "pair", "in": [ { "from": "gen0" }, { "from": "gen2" } ] },
    { "id": "lane", "repeat": 2, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" } },
    { "id": "third", "type": "compute", "in": [ { "from": "extra" }, { "from": "opt", "initial": 1 } ], "params": { "model": "nte" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" }, { "from": "third" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
  "run": { "steps": 1 } })"},
      {"endless", R"({
  "models": { "net": { "type": "mlp" } },
  "nodes": [
    { "id": "wave", "type": "wave", "params": { "period": 5 } },
    { "id": "pair", "type": "pair", "in": [ { "from": "wave" } ] },
    { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 1 } ], "params": { "model": "net" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
  "run": { "passes": 2 },
  "evaluate": { "every": 5 } })"},
      {"control",
       "{ \"nodes\": [ { \"id\": \"g\\u001b[31m\", \"type\": \"co\\u0007unt\\u202e\", \"\\u0000key\": 1 } ],\n  "
       "\"run\": { \"steps\": \"\\n\\t\\\"\" } }"},
      {"options", kSixteen,
       with({set("lan.loss=huber"), set("lane.los=huber"), set("lane.loss=hubr"), set("gen16.rows=1:"),
             set("gen3.features=x"), set("rnu.steps=5"), set("run.stepz=5"), set("run.metrics.every=0"),
             set("models.nte.hidden=[1]"), set("models.net.hidden=[8,0]"), set("models.net.type=mpl"),
             set("lane7.device=gpu"), set("evaluate.evry=5"), set("evaluate.set.gen.rowz=5"), set("name=a/b"),
             swap(R"(gen3={"type":"wave"})"), swap(R"(gne={"type":"wave"})"),
             swap(R"(norm={"type":"scael","parms":{}})")})},
  };
  return cases;
}

TEST_CASE("spec: broken pipelines are refused with every problem, its place, the rule and the nearest name") {
  for (const Broken& one : broken()) {
    CAPTURE(one.name);
    check_golden(std::string("graph/golden/broken_") + one.name + ".txt", refusal(one.text, one.options) + "\n");
  }
}

TEST_CASE("spec: a data file that is missing is exit 4, unless the pipeline has problems of its own") {
  const std::string nodes =
      R"({ "nodes": [ { "id": "gen", "repeat": 2, "type": "count", "each": { "path": ["a", "missing"] } },
    { "id": "norm", "repeat": 2, "type": "scale", "in": [ { "from": "gen", "take": 1 } ], "params": { %% } } ],
  "run": { "steps": 1 } })";
  const auto refused = [&](const std::string& params) {
    std::string text = nodes;
    text.replace(text.find("%%"), 2, params);
    try {
      plan_pipeline(text, "configs/mine.json", test_registry(), {});
    } catch (const PipelineError& error) {
      return fmt::format("{}: {}", static_cast<int>(error.exit()), error.what());
    }
    return std::string("accepted");
  };
  CHECK(refused("") ==
        "4: configs/mine.json:1:83  /nodes/0/each/path/1\n"
        "  cannot open configs/missing\n"
        "1 problem; nothing was started");
  CHECK(refused(R"("factor": true)") ==
        "3: configs/mine.json:1:83  /nodes/0/each/path/1\n"
        "  cannot open configs/missing\n"
        "configs/mine.json:2:103  /nodes/1/params/factor\n"
        "  scale: \"factor\" must be a number, not true\n"
        "2 problems; nothing was started");
}

TEST_CASE("spec: asking for GPUs that are not here is the device's exit code, where it is known how many are") {
  PlanOptions options = with({set("lane.device=cuda:9")});
  options.gpus = 2;
  try {
    plan_pipeline(kSixteen, "f", test_registry(), options);
    FAIL("accepted");
  } catch (const PipelineError& error) {
    CHECK(error.exit() == Exit::kDevice);
    CHECK(std::string(error.what()) ==
          "command line  --set lane.device=cuda:9\n"
          "  \"cuda:9\" is not here: 2 GPUs are visible; \"auto:*\" takes what there is\n"
          "1 problem; nothing was started");
  }
  options = with({set("lane.device=cuda:*")});
  const Plans plans = plan_pipeline(kSixteen, "f", test_registry(), options);
  CHECK(plans.train.find("lane0")->device == "cuda:0");
  CHECK(plans.train.find("lane7")->device == "cuda:7");
}

TEST_CASE("spec: an option that cannot be read at all is the command line's exit code") {
  for (const Override& option : {set("lane"), set("lane.loss"), set("lr=1.5"), set("=3"), set(".x=3"), set("lane.=3"),
                                 set("models.net=3"), set("a.b\xff=1"), swap("gen"), swap("gen=lorenz"),
                                 swap("={\"type\":\"wave\"}"), swap("gen={\"type\":"), swap("gen=[]")}) {
    CAPTURE(option.text);
    try {
      plan_pipeline(kSixteen, "f", test_registry(), with({option}));
      FAIL("accepted");
    } catch (const PipelineError& error) {
      FAIL(error.what());
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::kCommandLine);
      CHECK(std::string(error.what()).starts_with(option.kind == Override::Kind::kSet ? "--set " : "--swap "));
    }
  }
}

TEST_CASE("spec: --set reads its text by the field's type, for all instances or one, in the order given") {
  const Plans plans = plan_pipeline(
      kSixteen, "configs/f.json", test_registry(),
      with({set("gen.rows=5"), set("gen.features=3"), set("gen3.rows=true"), set("gen2.columns=[\"a\"]"),
            set("gen4.path=x.csv"), set("gen.step=0.25"), set("lane.loss=huber"), set("run.steps=50"),
            set("run.metrics.every=3"), set("run.dtype=float64"), set("models.net.hidden=[5]"), set("evaluate.every=7"),
            set("evaluate.set.gen1.rows=9:"), set("lane2.device=cpu:1"), set("opt.lr=0.5"), set("name=other")}));
  const Plan& plan = plans.train;
  const auto param = [&](const Plan& p, const std::string& id, const char* name) {
    return p.find(id)->params.at(name);
  };
  CHECK(param(plan, "gen0", "rows") == "5");
  CHECK(param(plan, "gen3", "rows") == "true");
  CHECK(param(plan, "gen15", "features") == 3);
  CHECK(param(plan, "gen2", "columns") == nlohmann::json{"a"});
  CHECK(param(plan, "gen4", "path") == "x.csv");
  CHECK(param(plan, "gen7", "step") == 0.25);
  CHECK(param(plan, "lane5", "loss") == "huber");
  CHECK(param(plan, "opt", "lr") == 0.5);
  CHECK(plan.run.steps == 50);
  CHECK(plan.run.metrics_every == 3);
  CHECK(plan.run.dtype == "float64");
  CHECK(plan.model("net").params.at("hidden") == nlohmann::json{5});
  CHECK(plan.evaluate->every == 7);
  CHECK(plan.find("lane2")->device == "cpu:1");
  CHECK(plan.name == "other");
  CHECK(param(*plans.evaluate, "gen1", "rows") == "9:");
  CHECK(param(*plans.evaluate, "gen0", "rows") == "80:");
}

TEST_CASE("spec: evaluate.set of the file comes before --set evaluate.set, and after everything else") {
  const Plans plans = plan_pipeline(kSixteen, "f", test_registry(), with({set("gen2.rows=5:6")}));
  CHECK(plans.train.find("gen2")->params.at("rows") == "5:6");
  CHECK(plans.train.find("gen1")->params.at("rows") == "0:80");
  CHECK(plans.evaluate->find("gen3")->params.at("rows") == "80:");
  CHECK(plans.evaluate->find("gen3")->params.at("step") == 0.5);
  CHECK(plans.evaluate->find("gen4")->params.at("step") == 1);
}

TEST_CASE("spec: --swap replaces type and parameters, keeps the wiring, and drops what no longer fits") {
  const Plans plans = plan_pipeline(
      kSixteen, "f", test_registry(),
      with({set("gen.period=9"), swap(R"(gen={"type":"wave","each":{"period":3},"params":{"levels":[1]}})"),
            set("run.steps=5")}));
  const Plan& plan = plans.train;
  CHECK(plan.find("gen5")->type->name == "wave");
  CHECK(plan.find("gen5")->params.at("period") == 9);
  CHECK(plan.find("gen5")->params.at("levels") == nlohmann::json{1.0});
  CHECK(plan.edges.size() == plan_pipeline(kSixteen, "f", test_registry(), {}).train.edges.size());
  CHECK(plan.evaluate->steps == 100);
  CHECK(plan.expanded.at("evaluate").dump() == R"({"every":10,"steps":100})");
  CHECK(plan.notes ==
        std::vector<std::string>{"gen: wave in the place of count drops rows and seed",
                                 "dropped \"gen.rows\" of evaluate.set: wave, put in by a swap, has no such parameter",
                                 "dropped \"gen3.step\" of evaluate.set: wave, put in by a swap, has no such parameter",
                                 "evaluate.steps is 100, since \"gen0\" is endless"});
}

TEST_CASE("spec: a swap to a node that does not fit names the edge") {
  CHECK(refusal(kSixteen, with({swap(R"(norm={"type":"clip"})")})) ==
        "configs/mine.json:6:62  /nodes/1/in/0/from\n"
        "  the input \"reduced\" of clip \"norm\" takes reduced, but the output \"sample\" of count \"gen\" carries "
        "sample\n"
        "configs/mine.json:7:60  /nodes/2/in/0/from\n"
        "  the input \"samples\" of pair \"pair\" takes sample, but the output \"reduced\" of clip \"norm\" carries "
        "reduced\n"
        "2 problems; nothing was started");
  CHECK(refusal(kSixteen, with({swap(R"(gen={"type":"wave","params":{"period":-1,"x":2}})"), set("run.steps=1")})) ==
        "command line  --swap gen /params/period\n"
        "  wave: \"period\" must be above 0, not -1\n"
        "command line  --swap gen /params/x\n"
        "  wave has no parameter \"x\"; it has period, schedule and levels\n"
        "2 problems; nothing was started");
}

// Replaces a random value somewhere in a JSON by another.
void mutate(nlohmann::json& root, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  nlohmann::json* at = &root;
  while (!at->empty() && at->is_structured() && below(4) != 0) {
    auto it = at->begin();
    std::advance(it, below(at->size()));
    at = &*it;
  }
  static const std::vector<nlohmann::json> values{nullptr,
                                                  true,
                                                  -1,
                                                  0,
                                                  1,
                                                  3.7,
                                                  1e300,
                                                  "",
                                                  "gen",
                                                  "x.y",
                                                  "opt.weights",
                                                  nlohmann::json::array(),
                                                  nlohmann::json::object(),
                                                  {1, "a"},
                                                  {{"from", "gen"}},
                                                  {{"type", "wave"}},
                                                  18446744073709551615u};
  if (at->is_array() && !at->empty() && below(2) == 0) {
    at->push_back(at->at(below(at->size())));
  } else {
    *at = values[below(values.size())];
  }
}

TEST_CASE("spec: pipelines with random values in random places are planned or refused, nothing else") {
  const unsigned seed = 20240607;
  CAPTURE(seed);
  std::mt19937 random(seed);
  int planned = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    auto file = nlohmann::json::parse(kSixteen, nullptr, true, /*ignore_comments=*/true);
    for (unsigned k = random() % 3 + 1; k > 0; --k) mutate(file, random);
    CAPTURE(i);
    CAPTURE(file.dump());
    try {
      const Plans plans = plan_pipeline(file.dump(), "f", test_registry(), {});
      CHECK(plans.train.digest.size() == 64);
      ++planned;
    } catch (const PipelineError& error) {
      CHECK_FALSE(error.problems().empty());
      ++refused;
    }
  }
  CHECK(planned > 5);
  CHECK(refused > 200);
}

TEST_CASE("spec: a file is read, named, and its folder is where relative paths start") {
  const std::string folder = std::filesystem::temp_directory_path() / "lanewise_spec_test",
                    path = folder + "/flights.v2.json";
  std::filesystem::create_directories(folder);
  std::ofstream(path) << R"({ "nodes": [ { "id": "g", "type": "count", "params": { "path": "d/x.csv" } },
    { "id": "s", "type": "scale", "in": [ { "from": "g" } ] } ], "run": { "steps": 1 } })";
  const Plan plan = plan_file(path, test_registry(), {}).train;
  CHECK(plan.name == "flights.v2");
  CHECK(plan.find("g")->params.at("path") == folder + "/d/x.csv");
  CHECK(plan.expanded.at("nodes").at(0).at("params").at("path") == "d/x.csv");
  try {
    plan_file(folder + "/none.json", test_registry(), {});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::kPipeline);
    CHECK(std::string(error.what()) == folder + "/none.json: cannot be read (No such file or directory)");
  }
  CHECK_THROWS_WITH_AS(plan_file("/", test_registry(), {}), "/: cannot be read (Is a directory)", Error);
}

}  // namespace
}  // namespace lanewise
