#include "runtime/snapshot.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace lanewise {
namespace {

constexpr const char* kRecurrent = "recurrent";
constexpr const char* kBuffers = "buffers";
constexpr const char* kOptimizer = "optimizer.";

// Nodes that stand behind the lanes: their state belongs to the step, while the nodes before run ahead of it.
bool belongs_to_step(const PlanNode& node) {
  return node.type->role == Role::kReduce || node.type->role == Role::kOptimizer || node.type->role == Role::kSink;
}

const at::Tensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto it = std::ranges::find(tensors, name, &NamedTensor::name);
  return it == tensors.end() ? nullptr : &it->tensor;
}

// What the optimizer would not take up is not lost without a word.
void refuse_another_optimizer(const TrainingParts& parts, const Checkpoint& checkpoint) {
  const std::vector<NamedTensor> own = parts.optimizers.state();
  for (const NamedTensor& saved : checkpoint.state) {
    if (!saved.name.starts_with(kOptimizer)) continue;
    const std::string name = saved.name.substr(std::string(kOptimizer).size());
    if (find(own, name) != nullptr) continue;
    const PlanNode& node = parts.plan.nodes[parts.plan.with_role(Role::kOptimizer).front()];
    throw Error(Exit::kCheckpoint,
                fmt::format("the checkpoint's optimizer was another one: it holds \"{}\", which {} does not keep", name,
                            node.params.at("name").get<std::string>()));
  }
}

// [streams, …], the rows of each stream from the process that reads it. Neighbouring lanes have neighbouring streams,
// and those of no lane come last.
at::Tensor gather_streams(const TrainingParts& parts, const at::Tensor& rows) {
  at::Tensor all = rows.clone();
  std::int64_t begin = 0, count = 0, last = 0;
  for (int lane = 0; lane < parts.lanes.size(); ++lane) {
    const auto streams = static_cast<std::int64_t>(parts.lanes.streams(lane).size());
    if (lane < parts.lanes.own().begin) begin += streams;
    if (parts.lanes.own().holds(lane)) count += streams;
    last += streams;
  }
  all.narrow(0, 0, last).copy_(parts.world.gather_rows(rows.narrow(0, begin, count)));
  return all;
}

// The manifests of all processes as one: what belongs to a stream from the process that reads it, what belongs to a
// node from one that has it.
nlohmann::ordered_json whole_manifest(const TrainingParts& parts, nlohmann::ordered_json own) {
  for (auto* const by_node : {&own["normalization"], &own["nodes"]}) {
    nlohmann::ordered_json here = nlohmann::ordered_json::object();
    for (const auto& [id, value] : by_node->items()) {
      if (parts.plan.find(id) != nullptr) here[id] = value;
    }
    *by_node = std::move(here);
  }
  std::vector<nlohmann::ordered_json> all;
  for (const std::string& text : parts.world.gather(own.dump())) all.push_back(nlohmann::ordered_json::parse(text));
  nlohmann::ordered_json whole = all.front();
  for (std::size_t r = 1; r < all.size(); ++r) {
    for (const char* const by_node : {"normalization", "nodes"}) {
      for (const auto& [id, value] : all[r][by_node].items()) {
        if (!whole[by_node].contains(id)) whole[by_node][id] = value;
      }
    }
  }
  for (int s = 0; s < parts.streams.size(); ++s) {
    nlohmann::ordered_json& reader = all[parts.lanes.rank_of_stream(s)];
    whole["streams"][parts.streams.name(s)] = reader["streams"][parts.streams.name(s)];
    for (const char* const by_stream : {"recurrent_runs", "target_means"}) whole[by_stream][s] = reader[by_stream][s];
  }
  return whole;
}

}  // namespace

void load_weights(Replicas& replicas, const std::vector<NamedTensor>& weights, const std::string& from) {
  const std::vector<NamedTensor> own = replicas.state_dict();
  for (const NamedTensor& parameter : own) {
    const at::Tensor* const saved = find(weights, parameter.name);
    const auto shape = [](const at::Tensor& t) { return to_string(Shape(t.sizes().vec())); };
    if (saved == nullptr) {
      throw Error(Exit::kCheckpoint, fmt::format("{} holds no \"{}\", which this model has", from, parameter.name));
    }
    if (saved->sizes() != parameter.tensor.sizes()) {
      throw Error(Exit::kCheckpoint, fmt::format("{}: \"{}\" is {}, and in this model {}", from, parameter.name,
                                                 shape(*saved), shape(parameter.tensor)));
    }
    // Numbers are rounded to the model's dtype; a number that becomes an integer, or the reverse, is a mistake.
    if (saved->is_floating_point() != parameter.tensor.is_floating_point()) {
      throw Error(Exit::kCheckpoint,
                  fmt::format("{}: \"{}\" holds {}, and in this model {}", from, parameter.name,
                              at::toString(saved->scalar_type()), at::toString(parameter.tensor.scalar_type())));
    }
  }
  for (std::size_t i = 0; i < replicas.specs().size(); ++i)
    replicas.parameter(static_cast<int>(i)).copy_(*find(weights, replicas.specs()[i].name));
  for (const NamedTensor& saved : weights) {
    // PyTorch counts the batches that a normalisation has seen, of which nothing here depends.
    if (find(own, saved.name) == nullptr && !saved.name.ends_with("num_batches_tracked")) {
      throw Error(Exit::kCheckpoint, fmt::format("{} holds \"{}\", which this model does not have", from, saved.name));
    }
  }
  for (std::size_t i = 0; i < replicas.buffers().specs().size(); ++i) {
    replicas.buffers().set(i, *find(weights, replicas.buffers().specs()[i].name));
  }
  for (int d = 1; d < replicas.domain_count(); ++d) replicas.weights(d).copy_(replicas.weights(0));
}

void load_model(Replicas& replicas, const Checkpoint& checkpoint) {
  load_weights(replicas, checkpoint.weights, "the checkpoint");
  if (!replicas.buffers().any_changes()) return;
  const at::Tensor* const saved = find(checkpoint.state, kBuffers);
  if (saved == nullptr) throw Error(Exit::kCheckpoint, "the checkpoint holds no buffers, which this model has");
  replicas.buffers().restore(*saved);
}

nlohmann::ordered_json save_normalization(const Normalization& normalization) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [node, s] : normalization.table()) {
    all[node] = {{"x_mean", s.x_mean}, {"x_scale", s.x_scale}, {"y_mean", s.y_mean}, {"y_scale", s.y_scale}};
  }
  return all;
}

void load_normalization(Normalization& normalization, const nlohmann::json& saved) {
  for (auto it = saved.begin(); it != saved.end(); ++it) {
    normalization.set(it.key(), Statistics{.x_mean = it->at("x_mean"),
                                           .x_scale = it->at("x_scale"),
                                           .y_mean = it->at("y_mean"),
                                           .y_scale = it->at("y_scale")});
  }
}

Checkpoint take_snapshot(const TrainingParts& parts, const Flow& flow, std::uint64_t step) {
  const auto gather = [&](const at::Tensor& rows) { return parts.world.gather_rows(rows); };
  Checkpoint checkpoint{.step = step, .manifest = nlohmann::ordered_json::object(), .weights = {}, .state = {}};
  parts.replicas.buffers().share(gather);
  if (parts.world.first()) {
    checkpoint.weights = parts.replicas.state_dict();
    for (NamedTensor& t : checkpoint.weights) t.tensor = t.tensor.clone();
    for (const NamedTensor& t : parts.optimizers.state())
      checkpoint.state.push_back(
          {kOptimizer + t.name, t.tensor.to(at::kCPU, t.tensor.scalar_type(), false, /*copy=*/true)});
  }
  if (parts.recurrent.size() > 0)
    checkpoint.state.push_back({kRecurrent, gather_streams(parts, parts.recurrent.rows())});
  if (parts.replicas.buffers().any_changes())
    checkpoint.state.push_back({kBuffers, parts.replicas.buffers().values().clone()});

  nlohmann::ordered_json own;
  own["digest"] = parts.plan.digest;
  own["streams"] = parts.cursors.save(parts.streams);
  own["recurrent_runs"] = parts.recurrent.runs();
  own["normalization"] = save_normalization(parts.normalization);
  own["target_means"] = parts.means.state();
  nlohmann::ordered_json& nodes = own["nodes"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < parts.plan.nodes.size(); ++i) {
    const PlanNode& node = parts.plan.nodes[i];
    if (!belongs_to_step(node)) continue;
    if (nlohmann::json state = flow.node(static_cast<int>(i)).state(); !state.empty())
      nodes[node.id] = std::move(state);
  }
  checkpoint.manifest = parts.world.size() == 1 ? std::move(own) : whole_manifest(parts, own);
  return checkpoint;
}

void restore_parts(const TrainingParts& parts, const Checkpoint& checkpoint) {
  load_model(parts.replicas, checkpoint);
  parts.optimizers.restore([&](const std::string& name) { return find(checkpoint.state, kOptimizer + name); });
  refuse_another_optimizer(parts, checkpoint);
  const nlohmann::json manifest = checkpoint.manifest;
  if (parts.recurrent.size() > 0) {
    const at::Tensor* const rows = find(checkpoint.state, kRecurrent);
    if (rows == nullptr)
      throw Error(Exit::kCheckpoint, "the checkpoint holds no recurrent state, which this model has");
    parts.recurrent.restore(*rows, manifest.at("recurrent_runs").get<std::vector<std::uint64_t>>());
  }
  load_normalization(parts.normalization, manifest.at("normalization"));
  parts.means.restore(manifest.at("target_means"));
  parts.cursors.load(manifest.at("streams"), parts.streams);
}

void restore_nodes(const TrainingParts& parts, const Checkpoint& checkpoint,
                   std::vector<std::unique_ptr<Node>>& nodes) {
  parts.cursors.rewind(parts.plan, parts.streams, nodes);
  const nlohmann::json saved = checkpoint.manifest.at("nodes");
  for (std::size_t i = 0; i < parts.plan.nodes.size(); ++i) {
    const PlanNode& node = parts.plan.nodes[i];
    if (const auto it = saved.find(node.id); it != saved.end() && belongs_to_step(node)) nodes[i]->restore(*it);
  }
  // Nodes that learn have put in what they knew at their record; an evaluation that comes first goes by what was known
  // then.
  load_normalization(parts.normalization, checkpoint.manifest.at("normalization"));
}

}  // namespace lanewise
