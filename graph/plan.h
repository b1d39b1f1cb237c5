// A Plan is what will run: checked, expanded, immutable, printable, with a digest. spec -> plan -> flow.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/fields.h"
#include "graph/registry.h"
#include "graph/signature.h"

namespace lanewise {

// What the end of a stream may mean: first, restart, mask, error.
const std::vector<std::string>& end_rules();

// "run": {"checkpoint": {…}}. A run also leaves one at its end, and when it is stopped.
struct CheckpointRules {
  std::optional<std::int64_t> every;  // steps; absent: only at the end
  std::int64_t keep = 3;              // the newest so many
  std::int64_t keep_best = 0;         // and so many with the best evaluation
  std::string on_error = "stop";      // stop, continue: what a save that fails means

  void fields(Fields& f);
};

// "run": {…}. At least one of steps, passes, minutes; the first reached ends the run.
struct RunSettings {
  std::optional<std::int64_t> steps, passes;
  std::optional<double> minutes;
  std::uint64_t seed = 0;
  std::int64_t threads = 0;         // 0: as many as there are cores
  std::string dtype = "float32";    // float32, float64
  std::string reduction = "";       // reference, deterministic, fast; "": Plan::reduction()
  std::string weights = "shared";   // shared, per_device
  std::string on_end = "";          // first, restart, mask, error; "": restart when passes is given, else first
  std::string non_finite = "stop";  // stop, skip, allow
  std::string state = "zero";       // zero, carry: what a recurrent model starts a sample from
  std::int64_t tbptt = 1;           // samples of a stream in one batch, through which the backward goes
  std::int64_t burn_in = 0;         // samples after a stream's start that weigh 0
  std::int64_t accumulate = 1;      // rounds of a step
  nlohmann::json fuse = "auto";     // off, auto, or how many batches neighbours of one memory are (graph/fuse.h)
  std::string buffers = "";         // local, average: what a model's buffers are after a step; "": refused
  std::int64_t verify_every = 0;    // steps between comparisons of the memory domains; 0: never
  double stall_s = 30;
  std::int64_t metrics_every = 1;
  CheckpointRules checkpoint;

  void fields(Fields& f);
  // What the end of a stream means: `on_end`, or its default.
  std::string end_rule() const { return !on_end.empty() ? on_end : passes ? "restart" : "first"; }
};

// "evaluate": {…}.
struct EvaluateSettings {
  std::optional<std::int64_t> every;  // steps; absent: only after the last step
  std::optional<std::int64_t> steps;  // rounds of one evaluation; needed where a source is endless
};

struct PlanModel {
  std::string name, type;
  nlohmann::json params;  // every parameter of the type
  Place place;
};

// One input edge as its consumer sees it: packets of output `port` of node `from`.
struct PlanEdge {
  int from = 0, from_port = 0;
  int to = 0, to_port = 0;
  int capacity = 2;
  int initial = 0;  // packets on the edge before the first firing (feedback edges)
};

// A lane that is computed together with others.
struct FusedLane {
  std::string id, device;
  std::vector<std::string> streams;  // of its rows
};

struct PlanNode {
  // The number of the GPU that the node computes on; nullopt: it computes on the host, or has no device.
  std::optional<int> gpu() const;

  std::string id;    // "gen3", or "opt" without repeat
  std::string base;  // "gen"
  int instance = 0;  // 3
  const NodeType* type = nullptr;
  std::string device;                     // "cpu:3"; "" for nodes without one
  nlohmann::json params;                  // every parameter of the type with the value in force, paths made whole
  std::vector<int> inputs;                // indices into Plan::edges, in port order
  std::vector<std::vector<int>> outputs;  // per output port, the edges it feeds
  std::vector<Signature> signatures;      // per output port
  nlohmann::ordered_json facts;           // what `check` says of it: {"parameters": 18049, "bucket": "71 KiB"}
  std::string alone;                      // why its rows are not computed with those of other lanes; "": they can be
  std::vector<FusedLane> fused;           // the lanes that it stands for, in the order of its rows; empty: itself
  Place place;                            // of the node's object in the file
  std::map<std::string, Place> param_places;  // of each parameter that was given
};

struct Plan {
  std::string name;
  std::vector<PlanNode> nodes;  // in an order in which inputs come first, feedback edges aside
  std::vector<PlanEdge> edges;
  std::vector<PlanModel> models;
  RunSettings run;
  std::optional<EvaluateSettings> evaluate;
  bool evaluating = false;          // this is the evaluation's plan
  std::string end_rule;             // first, restart, mask
  nlohmann::ordered_json expanded;  // the whole pipeline with every default and override; paths as written
  std::string digest;               // SHA-256 of `expanded`, hex
  std::string fusion;               // which lanes are fused, or why none is; "": there is one lane
  std::vector<std::string> notes;   // what the user should know: "dropped gen.rows of evaluate.set: …"

  const PlanNode* find(const std::string& id) const;
  std::vector<int> with_role(Role role) const;  // node indices
  std::size_t lane_count() const;               // each of those that are fused
  const PlanModel& model(const std::string& name) const;
  // How the lanes' gradients are added up: run.reduction, or its default, `reference` on the host and `deterministic`
  // on GPUs.
  std::string reduction() const;
};

template <class P>
P InferContext::params() const {
  return read_checked<P>(node.params);
}

template <class P>
P NodeContext::params() const {
  return read_checked<P>(node.params);
}

}  // namespace lanewise
