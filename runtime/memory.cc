#include "runtime/memory.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <optional>

#include "runtime/values.h"

namespace lanewise {
namespace {

// Samples in a packet of an edge; 0 where it carries none.
std::int64_t samples_in_packet(const Plan& plan, const PlanEdge& edge) {
  const PlanNode& from = plan.nodes[edge.from];
  const std::string& carries = from.type->outputs[edge.from_port].carries;
  if (carries == "sample") return 1;
  if (carries != "batch") return 0;
  return static_cast<std::int64_t>(from.signatures[edge.from_port].streams.size()) * plan.run.tbptt;
}

// Of the tensors of one sample; nullopt: a shape is unknown.
std::optional<std::int64_t> bytes_of_sample(const Plan& plan, const Signature& sample) {
  if (!sample.x || !sample.y) return std::nullopt;
  const std::int64_t number = plan.run.dtype == "float64" ? 8 : 4;
  return element_count(*sample.x) * number + element_count(*sample.y) * (sample.integer_target ? 8 : number);
}

// {"bound", "deepest"} of the samples on edges; null: a shape is unknown.
nlohmann::ordered_json queued_bytes(const Plan& plan, const FlowReport& report) {
  std::int64_t bound = 0, deepest = 0;
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const PlanEdge& edge = plan.edges[i];
    const std::int64_t samples = samples_in_packet(plan, edge);
    if (samples == 0) continue;
    const auto bytes = bytes_of_sample(plan, plan.nodes[edge.from].signatures[edge.from_port]);
    if (!bytes) return nullptr;
    bound += samples * *bytes * edge.capacity;
    deepest += samples * *bytes * report.edges[i].deepest;
  }
  return {{"bound", bound}, {"deepest", deepest}};
}

std::int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  std::int64_t bytes = 0;
  for (const NamedTensor& each : tensors) bytes += static_cast<std::int64_t>(each.tensor.nbytes());
  return bytes;
}

}  // namespace

nlohmann::ordered_json in_flight_json(const Plan& plan, const FlowReport& report) {
  std::int64_t bound = 0, deepest = 0;
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const std::int64_t samples = samples_in_packet(plan, plan.edges[i]);
    bound += samples * plan.edges[i].capacity;
    deepest += samples * report.edges[i].deepest;
  }
  return {{"bound", bound}, {"deepest", deepest}};
}

nlohmann::ordered_json memory_json(const Plan& plan, const FlowReport& report, Replicas& replicas,
                                   const Optimizers& optimizers) {
  std::int64_t weights = 0, reduced = 0, buckets = 0;
  for (int d = 0; d < replicas.domain_count(); ++d) {
    weights += static_cast<std::int64_t>(replicas.weights(d).nbytes());
    reduced += static_cast<std::int64_t>(replicas.reduced(d).nbytes());
  }
  for (int i = 0; i < replicas.lane_count(); ++i)
    buckets += static_cast<std::int64_t>(replicas.bucket(replicas.first_lane() + i).nbytes());
  return {{"weights", weights},
          {"optimizer", bytes_of(optimizers.state()) * replicas.domain_count()},
          {"buckets", buckets},
          {"reduced", reduced},
          {"queued", queued_bytes(plan, report)}};
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace lanewise
