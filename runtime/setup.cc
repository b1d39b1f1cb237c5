#include "runtime/setup.h"

#include <ATen/Parallel.h>

#include "runtime/device.h"
#include "runtime/devices/queue.h"
#include "runtime/model.h"
#include "runtime/snapshot.h"

namespace lanewise {

void use_one_thread() { at::set_num_threads(1); }

std::string end_rule_of(const Plan& train, const PlanNode& source) {
  const auto own = source.params.find("on_end");
  return own == source.params.end() || own->is_null() ? train.end_rule : own->get<std::string>();
}

SourceRules source_rules(const Plan& train) {
  SourceRules rules;
  rules.dtype = train.run.dtype == "float64" ? at::kDouble : at::kFloat;
  rules.end_rule = train.end_rule;
  rules.passes = train.run.passes;
  // Beside streams that end for good, one that restarts does not hold up the end: it has ended once it was read.
  bool any_mask = false;
  for (const int source : train.with_role(Role::kSource)) {
    any_mask = any_mask || end_rule_of(train, train.nodes[source]) == "mask";
  }
  if (any_mask && !rules.passes) rules.passes = 1;
  return rules;
}

namespace {

// Numbers the different ones of these from 0, in the order in which they come.
template <class T>
std::vector<int> numbered(const std::vector<T>& all) {
  std::vector<T> seen;
  std::vector<int> numbers;
  for (const T& one : all) {
    const auto it = std::ranges::find(seen, one);
    numbers.push_back(static_cast<int>(it - seen.begin()));
    if (it == seen.end()) seen.push_back(one);
  }
  return numbers;
}

// Which lanes of `own` share weights, and where.
void place(ReplicaOptions& options, const Plan& train, LaneRange own, const Accelerator* accelerator) {
  const std::vector<int> gpus = accelerator != nullptr ? gpus_of_lanes(train, own) : std::vector<int>{};
  if (!gpus.empty()) {
    options.domains = numbered(gpus);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (options.domains[i] == static_cast<int>(options.devices.size()))
        options.devices.push_back(accelerator->device(gpus[i]));
    }
  } else if (train.run.weights == "per_device") {
    std::vector<std::string> names;
    const std::vector<int> lanes = train.with_role(Role::kCompute);
    for (int lane = own.begin; lane < own.begin + own.count(); ++lane) names.push_back(train.nodes[lanes[lane]].device);
    options.domains = numbered(names);
  }
}

}  // namespace

std::string buffers_problem(const RunSettings& run, const std::string& model, std::int64_t rows) {
  if (rows < 2) {
    return fmt::format(
        "model \"{}\" normalises over the rows of a batch, and there is one; give the lane more "
        "streams, or normalise each row (norm \"layer\")",
        model);
  }
  if (!run.buffers.empty()) return "";
  return fmt::format(
      "model \"{}\" keeps statistics of batches of {} rows, which are noise; if that is meant, "
      "say whose: run.buffers \"local\" (each lane its own) or \"average\" (of all lanes, "
      "after each step); norm \"layer\" needs none",
      model, rows);
}

std::vector<std::string> inexact_parts(const Plan& train) {
  std::vector<std::string> lines;
  for (const PlanModel& model : train.models) {
    const ModelType* const type = find_model_type(model.type);
    if (!type || !type->inexact) continue;  // unknown: of a plugin that was not loaded
    if (const std::string what = type->inexact(model.params); !what.empty())
      lines.push_back(fmt::format("inexact: model \"{}\": {}", model.name, what));
  }
  return lines;
}

std::unique_ptr<Replicas> make_replicas(const Plan& train, const StreamTable& streams, LaneRange own,
                                        const Accelerator* accelerator) {
  const std::vector<int> lanes = train.with_role(Role::kCompute);
  if (lanes.empty() || train.with_role(Role::kOptimizer).empty()) {
    throw Error(Exit::kPipeline, "the pipeline trains nothing: it needs compute nodes, a reduction and an optimizer");
  }
  const PlanNode& lane = train.nodes[lanes.front()];
  const PlanEdge& edge = train.edges[lane.inputs[0]];
  const Signature& batch = train.nodes[edge.from].signatures[edge.from_port];
  const Signature& prediction = lane.signatures[1];
  if (!batch.x || !prediction.y) {
    throw Error(Exit::kPipeline, fmt::format("{}: the shapes of its samples are not known before the run", lane.id));
  }
  const PlanModel& model = train.model(lane.params["model"].get<std::string>());
  const ModelType& type = model_type(model.type);
  ReplicaOptions options{.dtype = train.run.dtype == "float64" ? at::kDouble : at::kFloat,
                         .lanes = static_cast<int>(lanes.size()),
                         .streams = streams.size(),
                         .own = own,
                         .seed = train.run.seed,
                         .average_buffers = train.run.buffers == "average"};
  place(options, train, own, accelerator);
  std::function<std::unique_ptr<Model>()> make = [&] { return type.make(model.params, *batch.x, *prediction.y); };
  const auto refuse = [&](Exit exit, const std::string& why) {
    throw Error(exit, fmt::format("{}: model \"{}\" ({}): {}", lane.id, model.name, model.type, why));
  };
  if (type.load) {
    try {
      make = type.load(model.params, *batch.x, *prediction.y, options.dtype);
    } catch (const Error& error) {
      refuse(error.exit(), error.what());
    }
  }
  auto replicas = std::make_unique<Replicas>(make, model.name, std::move(options));
  if (type.load && replicas->buffers().any_changes()) {  // else the plan has looked at it
    const auto rows = static_cast<std::int64_t>(batch.streams.size()) * train.run.tbptt;
    if (const std::string why = buffers_problem(train.run, model.name, rows); !why.empty())
      refuse(Exit::kPipeline, why);
  }
  if (const auto init = model.params.find("init");
      init != model.params.end() && init->is_string() && !init->get<std::string>().empty()) {
    const auto path = init->get<std::string>();
    load_weights(*replicas, read_safetensors(path).tensors, path);
  }
  return replicas;
}

}  // namespace lanewise
