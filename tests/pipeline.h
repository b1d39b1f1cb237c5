// Trains a pipeline given as text, in this process, and hands back all that it left. Types for tests stand beside the
// built-in ones: `capture` keeps a copy of every sample that passes, `script` gives prescribed ones.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/spec.h"
#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "runtime/services.h"
#include "runtime/trainer.h"
#include "runtime/values.h"
#include "tests/files.h"

namespace lanewise {

// A safetensors file of float32 and float64, read without the product's help.
inline std::map<std::string, at::Tensor> tensors_in(const std::string& path) {
  const std::string bytes = read_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::map<std::string, at::Tensor> tensors;
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const at::Tensor tensor =
        at::empty(entry["shape"].get<std::vector<std::int64_t>>(), entry["dtype"] == "F64" ? at::kDouble : at::kFloat);
    std::memcpy(tensor.mutable_data_ptr(), bytes.data() + 8 + length + entry["data_offsets"][0].get<std::size_t>(),
                tensor.nbytes());
    tensors[name] = tensor;
  }
  return tensors;
}

// What `capture` nodes saw, by stream name in the order seen; `script` sources give `scripts` by node id.
struct Captured {
  std::mutex mutex;
  std::map<std::string, std::vector<Sample>> samples;
};
inline Captured& captured() {
  static Captured all;
  return all;
}
inline std::map<std::string, std::vector<Sample>>& scripts() {
  static std::map<std::string, std::vector<Sample>> all;
  return all;
}

// Scripts for gen0 to gen15: samples of `rounds`, at most 20 of them, in that order, from smooth waves; x has three
// values and y one. In round `bad`, x of stream 11 is NaN.
inline void write_scripts(const std::vector<int>& rounds, int bad, at::ScalarType dtype = at::kDouble) {
  constexpr int kStreams = 16;
  scripts().clear();
  const at::Tensor all = at::sin(at::arange(kStreams * 20 * 4, at::kDouble) * 1.7).reshape({kStreams, 20, 4}).to(dtype);
  for (int k = 0; k < kStreams; ++k) {
    std::vector<Sample>& script = scripts()[fmt::format("gen{}", k)];
    for (const int r : rounds) {
      Sample sample{
          .x = all[k][r].narrow(0, 0, 3).clone(), .y = all[k][r].narrow(0, 3, 1).clone(), .known = {}, .tag = {}};
      if (k == 11 && r == bad) sample.x.fill_(NAN);
      script.push_back(std::move(sample));
    }
  }
}

class Capture final : public Node {
 public:
  struct Params {
    void fields(Fields&) {}
  };
  Capture(const Params&, const NodeContext& context)
      : streams_(context.services.get<StreamTable>()), evaluating_(context.plan.evaluating) {}
  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    const Sample& sample = firing.input(0).get<Sample>();
    if (!evaluating_) {
      const std::lock_guard lock(captured().mutex);
      captured().samples[streams_.name(sample.tag.stream)].push_back(sample);
    }
    firing.emit(0, std::move(firing.input(0)));
  }

 private:
  const StreamTable& streams_;
  const bool evaluating_;
};

class Script final : public Node {
 public:
  struct Params {
    void fields(Fields&) {}
  };
  Script(const Params&, const NodeContext& context)
      : samples_(scripts().at(context.node.id)), stream_(context.services.get<StreamTable>().index(context.node.id)) {}
  void fire(Firing& firing) override {
    if (firing.index() == samples_.size()) return firing.end();
    Sample sample = samples_[firing.index()];
    sample.tag.stream = stream_;
    sample.tag.seq = firing.index();
    sample.tag.start = firing.index() == 0;
    firing.emit(0, Packet::of(std::move(sample)));
  }

 private:
  const std::vector<Sample> samples_;
  const int stream_;
};

inline Registry test_registry() {
  Registry registry = builtin_registry();
  registry.nodes.push_back(node_type<Capture>("capture", "keeps what passes", Role::kPerSample, {{"sample", "sample"}},
                                              {{"sample", "sample"}},
                                              [](InferContext& c) { c.node.signatures = {c.inputs[0]}; }));
  registry.nodes.push_back(node_type<Script>(
      "script", "gives prescribed samples", Role::kSource, {}, {{"sample", "sample"}}, [](InferContext& c) {
        const Sample& first = scripts().at(c.node.id).front();
        c.node.signatures = {Signature{.x = first.x.sizes().vec(), .y = first.y.sizes().vec(), .streams = {c.node.id}}};
      }));
  return registry;
}

// A finished run: its report, and what its directory held.
struct Ran {
  nlohmann::ordered_json report;
  std::string metrics;                       // metrics.jsonl
  std::map<std::string, std::string> files;  // by name
  std::map<std::string, at::Tensor> weights;
  std::vector<std::string> said;

  int exit() const { return report["exit"]; }
  std::string reason() const { return report["reason"]; }
  std::vector<double> losses() const {
    std::vector<double> all;
    std::size_t begin = 0;
    while (begin < metrics.size()) {
      const std::size_t end = metrics.find('\n', begin);
      const auto loss = nlohmann::json::parse(metrics.substr(begin, end - begin))["loss"];
      all.push_back(loss.is_null() ? NAN : loss.get<double>());
      begin = end + 1;
    }
    return all;
  }
};

// Changes as on the command line, "run.steps=5"; one that is a swap starts with "swap ".
inline Plans plans_of(const std::string& text, const std::vector<std::string>& sets = {},
                      const Registry& registry = test_registry()) {
  PlanOptions options;
  options.cores = 2;
  for (const std::string& set : sets) {
    const bool swap = set.starts_with("swap ");
    options.overrides.push_back({swap ? Override::Kind::kSwap : Override::Kind::kSet, swap ? set.substr(5) : set});
  }
  return plan_pipeline(text, "test.json", registry, options);
}

// Trains, or goes on with what the directory holds.
inline Ran train_in(
    const std::string& directory, Plans plans, bool resume = false, std::function<int()> signal = [] { return 0; }) {
  Ran ran;
  RunOptions run;
  run.directory = directory;
  run.resume = resume;
  run.quiet = true;
  run.signal = std::move(signal);
  run.say = [&](const std::string& line) { ran.said.push_back(line); };
  Trainer trainer(std::move(plans), run);
  ran.report = trainer.run();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file()) ran.files[entry.path().filename()] = read_text(entry.path());
  }
  if (ran.files.contains("metrics.jsonl")) ran.metrics = ran.files["metrics.jsonl"];
  if (ran.files.contains("weights.safetensors")) ran.weights = tensors_in(directory + "/weights.safetensors");
  return ran;
}

inline Ran train(
    const std::string& text, const std::vector<std::string>& sets = {}, const Registry& registry = test_registry(),
    std::function<int()> signal = [] { return 0; }) {
  const TemporaryFolder folder;
  return train_in(folder.path() + "/run", plans_of(text, sets, registry), /*resume=*/false, std::move(signal));
}

// The mission's topology over `streams` sources of a type: [source -> (extra per-sample nodes)] -> pair -> lane ->
// reduce -> opt. `chain`: JSON of per-sample nodes between "gen" and the pair, whose last id is `last`.
struct Topology {
  int streams = 16, lanes = 8, capacity = 2;
  std::string source = R"("type": "ar1", "params": { "features": 6 })";
  std::string chain, last = "gen";
  std::string model = R"("type": "mlp", "hidden": [16], "activation": "tanh")";
  std::string lane = R"("type": "compute", "params": { "model": "net" })";
  std::string reduce = "allreduce";
  std::string optimizer = R"("name": "sgd", "lr": 0.01)";
  std::string run = R"("steps": 20, "seed": 7)";
  std::string extra;  // ", { node }" and so on, and after the nodes: more top-level keys
  std::string top;

  std::string text() const {
    return fmt::format(R"({{
  "name": "test", "models": {{ "net": {{ {} }} }},
  "nodes": [
    {{ "id": "gen", "repeat": {}, {} }},{}
    {{ "id": "pair", "repeat": {}, "type": "pair", "in": [ {{ "from": "{}", "take": {}, "capacity": {} }} ] }},
    {{ "id": "lane", "repeat": {}, "in": [ {{ "from": "pair", "take": 1 }}, {{ "from": "opt", "initial": 1 }} ], "device": "cpu:*", {} }},
    {{ "id": "reduce", "type": "{}", "in": [ {{ "from": "lane" }} ] }},
    {{ "id": "opt", "type": "optimizer", "in": [ {{ "from": "reduce" }} ], "params": {{ {} }} }}{}
  ],
  "run": {{ {} }}{}
}})",
                       model, streams, source, chain, lanes, last, (streams + lanes - 1) / lanes, capacity, lanes, lane,
                       reduce, optimizer, extra, run, top);
  }
};

}  // namespace lanewise
