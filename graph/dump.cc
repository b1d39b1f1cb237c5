#include "graph/dump.h"

#include <fmt/format.h>

#include "graph/dot.h"

namespace lanewise {
namespace {

using nlohmann::ordered_json;

const char* dot_shape(Role role) {
  switch (role) {
    case Role::kSource:
      return "invhouse";
    case Role::kCompute:
      return "box3d";
    case Role::kSink:
      return "house";
    default:
      return "box";
  }
}

ordered_json optional_json(const std::optional<Shape>& shape) { return shape ? ordered_json(*shape) : ordered_json(); }

ordered_json signature_json(const Signature& signature) {
  ordered_json json{{"text", signature.text()}, {"x", optional_json(signature.x)}, {"y", optional_json(signature.y)}};
  if (signature.integer_target) json["integer_target"] = true;
  if (signature.parameters) json["parameters"] = *signature.parameters;
  if (signature.endless) json["endless"] = true;
  if (signature.length) json["length"] = *signature.length;
  return json;
}

}  // namespace

std::string dump_dot(const Plan& plan, const FlowReport* report) {
  std::string text = fmt::format("digraph {} {{\n  rankdir=LR;\n  node [shape=box];\n", dot_id(plan.name));
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    std::string label = node.id + "\n" + node.type->name + (node.device.empty() ? "" : " on " + node.device);
    if (!node.fused.empty()) label += fmt::format("\n{} lanes as one batch", node.fused.size());
    if (report)
      label += fmt::format("\n{} fired, {:.0f} % busy", report->nodes.at(i).fired, 100 * report->nodes[i].busy);
    text += fmt::format("  {} [label={}, shape={}];\n", dot_id(node.id), dot_label(label), dot_shape(node.type->role));
  }
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const PlanEdge& edge = plan.edges[i];
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    std::string label = fmt::format("{}: {}", edge.capacity, from.signatures[edge.from_port].text());
    if (edge.from_port > 0) label = from.type->outputs[edge.from_port].name + " " + label;
    if (report) {
      const EdgeReport& counts = report->edges.at(i);
      label += fmt::format("\nput {}, deepest {}, blocked {:.3f} s", counts.put, counts.deepest, counts.blocked_s);
    }
    text += fmt::format("  {} -> {} [label={}{}];\n", dot_id(from.id), dot_id(to.id), dot_label(label),
                        edge.initial > 0 ? ", style=dashed, constraint=false" : "");
  }
  return text + "}\n";
}

ordered_json dump_json(const Plan& plan, const FlowReport* report) {
  ordered_json json{{"name", plan.name}, {"digest", plan.digest}, {"end_rule", plan.end_rule}};
  if (plan.evaluating) json["evaluating"] = true;
  if (!plan.fusion.empty()) json["fusion"] = plan.fusion;
  ordered_json& models = json["models"] = ordered_json::array();
  for (const PlanModel& model : plan.models) {
    models.push_back({{"name", model.name}, {"type", model.type}, {"params", ordered_json(model.params)}});
  }
  ordered_json& nodes = json["nodes"] = ordered_json::array();
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    ordered_json& entry = nodes.emplace_back(ordered_json{{"id", node.id}, {"type", node.type->name}});
    entry["role"] = to_string(node.type->role);
    entry["base"] = node.base;
    entry["instance"] = node.instance;
    entry["device"] = node.device.empty() ? ordered_json() : ordered_json(node.device);
    entry["params"] = ordered_json(node.params);
    entry["inputs"] = node.inputs;
    ordered_json& outputs = entry["outputs"] = ordered_json::array();
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      ordered_json output{{"port", node.type->outputs[port].name}, {"carries", node.type->outputs[port].carries}};
      output.update(signature_json(node.signatures[port]));
      output["edges"] = node.outputs[port];
      outputs.push_back(std::move(output));
    }
    for (const FusedLane& lane : node.fused)
      entry["fused"].push_back({{"id", lane.id}, {"device", lane.device}, {"streams", lane.streams}});
    entry["facts"] = node.facts.is_null() ? ordered_json::object() : node.facts;
    if (!report) continue;
    const NodeReport& counts = report->nodes.at(i);
    entry["fired"] = counts.fired;
    entry["absorbed"] = counts.absorbed;
    entry["busy"] = counts.busy;
    entry["starved"] = counts.starved;
    entry["blocked"] = counts.blocked;
  }
  ordered_json& edges = json["edges"] = ordered_json::array();
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const PlanEdge& edge = plan.edges[i];
    const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
    ordered_json& entry = edges.emplace_back(ordered_json{{"from", from.id},
                                                          {"from_port", from.type->outputs[edge.from_port].name},
                                                          {"to", to.id},
                                                          {"to_port", to.type->inputs[edge.to_port].name},
                                                          {"capacity", edge.capacity},
                                                          {"initial", edge.initial}});
    if (!report) continue;
    const EdgeReport& counts = report->edges.at(i);
    entry["deepest"] = counts.deepest;
    entry["put"] = counts.put;
    entry["taken"] = counts.taken;
    entry["left"] = counts.left;
    entry["starved_s"] = counts.starved_s;
    entry["blocked_s"] = counts.blocked_s;
  }
  return json;
}

}  // namespace lanewise
