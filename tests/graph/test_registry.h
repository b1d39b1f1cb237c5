// A small table of node types for tests of the graph: they have ports, parameters and shapes, but do nothing.
//
//   count -> scale -> pair -> compute -> reduce -> optimizer -> compute
//                                    \-> log (sink), score
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/plan.h"
#include "graph/registry.h"

namespace lanewise {

// A source of `length` samples, or endless; a `path` ending in "missing" is a data problem.
struct CountParams {
  std::int64_t features = 4;
  std::optional<std::int64_t> length = 100;
  std::uint64_t seed = 0;
  double step = 1;
  std::string rows;
  Path path;
  std::vector<std::string> columns;
  void fields(Fields& f) {
    f.add("features", features, "values per sample").at_least(1);
    f.add("length", length, "samples; null: endless").at_least(1);
    f.add("seed", seed, "of its random numbers");
    f.add("step", step, "between two values").unit("s").between(-1, 1);
    f.add("rows", rows, "which rows, \"a:b\"");
    f.add("path", path, "a data file");
    f.add("columns", columns, "names of columns");
  }
};

// An endless source with an obligatory parameter.
struct WaveParams {
  double period = 0;
  std::int64_t warmup = 10;
  std::vector<double> levels{1, 2};
  void fields(Fields& f) {
    f.add("period", period, "samples of one wave").above(0).required();
    f.group("schedule", "how it sets in",
            [this](Fields& g) { g.add("warmup", warmup, "samples until then").at_least(0); });
    f.add("levels", levels, "amplitudes").at_least(0);
  }
};

struct ScaleParams {
  double factor = 1;
  bool centre = false;
  void fields(Fields& f) {
    f.add("factor", factor, "by which values are multiplied");
    f.add("centre", centre, "subtract the mean");
  }
};

struct ComputeParams {
  std::string model, loss = "mse";
  void fields(Fields& f) {
    f.add("model", model, "one of the section models").required();
    f.add("loss", loss, "what is minimised").one_of({"mse", "huber"});
  }
};

struct OptimizerParams {
  std::string name = "sgd";
  double lr = 0.01;
  void fields(Fields& f) {
    f.add("name", name, "of the rule").one_of({"sgd", "adam"});
    f.add("lr", lr, "learning rate").above(0);
  }
};

struct MlpParams {
  std::vector<std::int64_t> hidden{8};
  std::int64_t layers = 1;
  void fields(Fields& f) {
    f.add("hidden", hidden, "units a layer").at_least(1);
    f.add("layers", layers, "how many").between(1, 8);
  }
};

// The fields function of a type with parameters P.
template <class P>
std::function<void(Fields&)> reader() {
  return [](Fields& f) {
    P params;
    params.fields(f);
  };
}

inline NodeType count_type() {
  NodeType type{"count", "counts up", Role::kSource, {}, {{"sample", "sample"}}, reader<CountParams>(), {}, {}};
  type.infer = [](InferContext& c) {
    const auto p = c.params<CountParams>();
    if (p.path.text.ends_with("missing")) c.data_problem("cannot open " + p.path.text, "path");
    Signature& s = c.node.signatures[0];
    s.x = Shape{p.features};
    s.y = Shape{1};
    s.streams = {c.node.id};
    s.length = p.length;
    s.endless = !p.length;
  };
  return type;
}

inline NodeType wave_type() {
  NodeType type{"wave", "goes up and down", Role::kSource, {}, {{"sample", "sample"}}, reader<WaveParams>(), {}, {}};
  type.infer = [](InferContext& c) {
    Signature& s = c.node.signatures[0];
    s.x = s.y = Shape{static_cast<std::int64_t>(c.params<WaveParams>().levels.size())};
    s.streams = {c.node.id};
    s.endless = true;
  };
  return type;
}

inline NodeType pair_type() {
  NodeType type{
      "pair", "joins streams by seq", Role::kJoin, {{"samples", "sample", true}}, {{"batch", "batch"}}, {}, {}, {}};
  type.infer = [](InferContext& c) {
    Signature& s = c.node.signatures[0];
    s = c.inputs[0];
    s.streams.clear();
    for (const Signature& input : c.inputs) {
      s.streams.insert(s.streams.end(), input.streams.begin(), input.streams.end());
      s.endless = s.endless || input.endless;
      if (input.x != s.x) {
        c.problem(fmt::format("\"{}\" cannot join {} of {} with {} of {}", c.node.id, to_string(*s.x), s.streams[0],
                              to_string(*input.x), input.streams[0]));
      }
    }
  };
  return type;
}

inline NodeType compute_type() {
  NodeType type{"compute",
                "forward, loss, backward",
                Role::kCompute,
                {{"batch", "batch"}, {"weights", "weights"}},
                {{"gradient", "gradient"}, {"prediction", "prediction"}},
                reader<ComputeParams>(),
                {},
                {}};
  type.has_device = true;
  type.infer = [](InferContext& c) {
    const auto p = c.params<ComputeParams>();
    std::vector<std::string> names;
    for (const PlanModel& model : c.plan.models) names.push_back(model.name);
    if (std::find(names.begin(), names.end(), p.model) == names.end()) {
      return c.problem(fmt::format("no model is named \"{}\"{}", p.model, did_you_mean(p.model, names)), "model");
    }
    const auto hidden = c.plan.model(p.model).params.at("hidden").get<std::vector<std::int64_t>>();
    const std::int64_t units = std::accumulate(hidden.begin(), hidden.end(), std::int64_t{0});
    c.node.signatures[0].parameters = units * c.inputs[0].x->at(0) + units;
    c.node.signatures[1] = c.inputs[0];
    c.node.facts["parameters"] = *c.node.signatures[0].parameters;
  };
  return type;
}

// The signature of the first input on every output.
inline void pass_on(InferContext& c) {
  for (Signature& s : c.node.signatures) s = c.inputs[0];
}

inline Registry make_test_registry(bool with_score) {
  Registry registry;
  registry.nodes = {
      count_type(),
      wave_type(),
      {"scale",
       "multiplies",
       Role::kPerSample,
       {{"sample", "sample"}},
       {{"sample", "sample"}},
       reader<ScaleParams>(),
       pass_on,
       {}},
      pair_type(),
      compute_type(),
      {"reduce",
       "averages",
       Role::kReduce,
       {{"gradients", "gradient", true}},
       {{"reduced", "reduced"}},
       {},
       pass_on,
       {}},
      {"clip",
       "bounds the norm",
       Role::kPerSample,
       {{"reduced", "reduced"}},
       {{"reduced", "reduced"}},
       {},
       pass_on,
       {}},
      {"optimizer",
       "steps",
       Role::kOptimizer,
       {{"reduced", "reduced"}},
       {{"weights", "weights"}},
       reader<OptimizerParams>(),
       pass_on,
       {}},
      {"log", "writes predictions", Role::kSink, {{"predictions", "prediction", true}}, {}, {}, {}, {}},
  };
  registry.nodes[7].closes_cycles = true;
  if (with_score) {
    NodeType score{"score", "scores predictions", Role::kSink, {{"predictions", "prediction", true}}, {}, {}, {}, {}};
    score.internal = true;
    registry.nodes.push_back(score);
  }
  registry.models = {{"mlp", "layers of units", reader<MlpParams>()}};
  registry.losses = {{"mse", "squared error", {}}, {"huber", "squared, then linear", {}}};
  return registry;
}

// Lives as long as the program, as the table of a plan must outlive it.
inline const Registry& test_registry(bool with_score = true) {
  static const Registry with = make_test_registry(true), without = make_test_registry(false);
  return with_score ? with : without;
}

// Sixteen streams, eight lanes.
inline const char* kSixteen = R"({ // the whole thing
  "name": "sixteen",
  "models": { "net": { "type": "mlp", "hidden": [8, 4] } },
  "nodes": [
    { "id": "gen", "repeat": 16, "type": "count", "each": { "seed": 7 }, "params": { "rows": "0:80" } },
    { "id": "norm", "repeat": 16, "type": "scale", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "pair", "repeat": 8, "type": "pair", "in": [ { "from": "norm", "take": 2, "capacity": 4 } ] },
    { "id": "lane", "repeat": 8, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "auto:*", "params": { "model": "net" } },
    { "id": "reduce", "type": "reduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "name": "adam", "lr": 1e-3 } } ],
  "run": { "passes": 5, "seed": 7 },
  "evaluate": { "every": 10, "set": { "gen.rows": "80:", "gen3.step": 0.5 } }
})";

}  // namespace lanewise
