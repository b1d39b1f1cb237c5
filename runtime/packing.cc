#include "runtime/packing.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>

#include "runtime/tensors.h"

namespace lanewise {
namespace {

using nlohmann::json;

// {name, dtype, shape} of each; the bytes go behind `bytes`.
json pack_tensors(const std::vector<NamedTensor>& tensors, std::string& bytes) {
  json all = json::array();
  for (const NamedTensor& t : tensors) {
    const at::Tensor whole = t.tensor.contiguous();
    all.push_back({{"name", t.name}, {"dtype", static_cast<int>(whole.scalar_type())}, {"shape", whole.sizes().vec()}});
    bytes += raw_bytes(whole);
  }
  return all;
}

std::vector<NamedTensor> unpack_tensors(const json& all, const char*& at) {
  std::vector<NamedTensor> tensors;
  for (const json& one : all) {
    const auto dtype = static_cast<at::ScalarType>(one.at("dtype").get<int>());
    at::Tensor tensor = at::empty(one.at("shape").get<std::vector<std::int64_t>>(), dtype);
    std::memcpy(tensor.mutable_data_ptr(), at, tensor.nbytes());
    at += tensor.nbytes();
    tensors.push_back({one.at("name"), std::move(tensor)});
  }
  return tensors;
}

}  // namespace

// The length of a JSON text, 8 bytes; the text; the tensors' bytes.
std::string pack(const Checkpoint& checkpoint) {
  std::string bytes;
  nlohmann::ordered_json head = {{"step", checkpoint.step}, {"manifest", checkpoint.manifest}};
  head["weights"] = pack_tensors(checkpoint.weights, bytes);
  head["state"] = pack_tensors(checkpoint.state, bytes);
  const std::string text = head.dump();
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + bytes;
}

Checkpoint unpack(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const char* at = bytes.data() + sizeof length;
  const auto head = nlohmann::ordered_json::parse(at, at + length);
  at += length;
  Checkpoint checkpoint{.step = head.at("step"), .manifest = head.at("manifest"), .weights = {}, .state = {}};
  checkpoint.weights = unpack_tensors(head.at("weights"), at);
  checkpoint.state = unpack_tensors(head.at("state"), at);
  return checkpoint;
}

json pack(const StreamAccount& a) { return {a.produced, a.used, a.fillers, a.absorbed, a.left}; }

StreamAccount unpack_account(const json& packed) {
  return {.produced = packed.at(0),
          .used = packed.at(1),
          .fillers = packed.at(2),
          .absorbed = packed.at(3),
          .left = packed.at(4)};
}

json pack(const FlowReport& report) {
  json edges = json::array(), nodes = json::array();
  for (const EdgeReport& e : report.edges) {
    edges.push_back({e.from, e.to, e.capacity, e.deepest, e.put, e.taken, e.left, e.starved_s, e.blocked_s});
  }
  for (const NodeReport& n : report.nodes) {
    nodes.push_back(
        {n.id, n.type, n.fired, n.absorbed, n.ended, n.busy_s, n.starved_s, n.blocked_s, n.busy, n.starved, n.blocked});
  }
  return {{"edges", edges}, {"nodes", nodes}, {"seconds", report.seconds}};
}

FlowReport unpack_flow_report(const json& packed) {
  FlowReport report;
  for (const json& e : packed.at("edges")) {
    report.edges.push_back({e.at(0), e.at(1), e.at(2), e.at(3), e.at(4), e.at(5), e.at(6), e.at(7), e.at(8)});
  }
  for (const json& n : packed.at("nodes")) {
    report.nodes.push_back(
        {n.at(0), n.at(1), n.at(2), n.at(3), n.at(4), n.at(5), n.at(6), n.at(7), n.at(8), n.at(9), n.at(10)});
  }
  report.seconds = packed.at("seconds");
  return report;
}

FlowReport merge_reports(const Plan& whole, const std::vector<FlowReport>& parts) {
  FlowReport merged;
  merged.seconds = parts.front().seconds;
  for (const PlanNode& node : whole.nodes) {
    NodeReport& report = merged.nodes.emplace_back();
    report.id = node.id, report.type = node.type->name;
    for (const FlowReport& part : parts) {
      const auto found = std::ranges::find(part.nodes, node.id, &NodeReport::id);
      if (found == part.nodes.end()) continue;
      report = *found;
      break;
    }
  }
  const auto node_of = [](const std::string& end) { return end.substr(0, end.find('.')); };
  std::map<std::pair<std::string, std::string>, std::size_t> seen;  // edges between two nodes so far
  for (const PlanEdge& edge : whole.edges) {
    EdgeReport& report = merged.edges.emplace_back();
    report.from = whole.nodes[edge.from].id, report.to = whole.nodes[edge.to].id, report.capacity = edge.capacity;
    const std::size_t before = seen[{report.from, report.to}]++;
    for (const FlowReport& part : parts) {
      std::size_t skip = before;
      const auto found = std::ranges::find_if(part.edges, [&](const EdgeReport& e) {
        return node_of(e.from) == whole.nodes[edge.from].id && node_of(e.to) == whole.nodes[edge.to].id && skip-- == 0;
      });
      if (found == part.edges.end()) continue;
      report = *found;
      break;
    }
  }
  return merged;
}

}  // namespace lanewise
