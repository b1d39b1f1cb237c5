#include "graph/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/parameters.h"
#include "graph/sha256.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;
using nlohmann::ordered_json;

// Raised when the text that the digest is taken of changes its form.
constexpr const char* kFormat = "lanewise plan 1\n";

// Reads one node's parameters. False: something is wrong with them.
bool read_params(PlanNode& node, ordered_json& written, const Written& params, const Document& document,
                 std::vector<Problem>& problems) {
  const std::size_t before = problems.size();
  Fields fields(params.source(document, node.type->name), problems);
  if (node.type->fields) node.type->fields(fields);
  fields.finish();
  node.params = fields.resolved();
  written = fields.written();
  for (const auto& [key, value] : params.values().items()) {
    node.param_places[key] = params.origin_of(pointer_to(key).substr(1)).place(document);
  }
  return problems.size() == before;
}

// What makes two rules of one place say the same: all but the numbers.
std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

std::string port_text(const PlanNode& node, int port) { return node.id + "." + node.type->outputs[port].name; }

ordered_json expanded_of(const Draft& draft, const Spec& spec, const Settings& settings) {
  const Plan& plan = draft.plan;
  ordered_json text;
  text["name"] = plan.name;
  if (plan.evaluating) text["evaluating"] = true;
  for (const PluginFile& plugin : spec.plugins) text["plugins"][plugin.written] = plugin.sha256;
  text["models"] = settings.models_written;
  ordered_json& nodes = text["nodes"] = ordered_json::array();
  ordered_json set = ordered_json::object();
  std::unordered_map<std::string, const NodeSpec*> specs;
  for (const NodeSpec& node : spec.nodes) specs[node.id] = &node;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    ordered_json& entry = nodes.emplace_back(ordered_json{{"id", node.id}, {"type", node.type->name}});
    ordered_json in = ordered_json::array();
    for (const int e : node.inputs) {
      const PlanEdge& edge = plan.edges[e];
      ordered_json input{{"from", port_text(plan.nodes[edge.from], edge.from_port)},
                         {"port", node.type->inputs[edge.to_port].name},
                         {"capacity", edge.capacity}};
      if (edge.initial > 0) input["initial"] = edge.initial;
      in.push_back(std::move(input));
    }
    if (!in.empty()) entry["in"] = std::move(in);
    if (!node.device.empty()) entry["device"] = node.device;
    if (!draft.written[i].empty()) entry["params"] = draft.written[i];
    const auto it = specs.find(node.base);
    if (it == specs.end()) continue;
    for (const NodeChange& change : it->second->evaluate_changes) {
      if (!change.instances.contains(node.instance)) continue;
      set[fmt::format("{}.{}", node.id, fmt::join(change.path, "."))] = change.value.value_or(nullptr);
    }
  }
  text["run"] = settings.run_written;
  if (plan.evaluate) {
    ordered_json& evaluate = text["evaluate"] = ordered_json::object();
    if (plan.evaluate->every) evaluate["every"] = *plan.evaluate->every;
    if (plan.evaluate->steps) evaluate["steps"] = *plan.evaluate->steps;
    if (!set.empty()) evaluate["set"] = std::move(set);
  }
  return text;
}

}  // namespace

Settings read_settings(const Spec& spec, const Document& document, const Registry& registry,
                       std::vector<Problem>& problems) {
  Settings settings;
  RunSettings& run = settings.run;
  {
    Fields fields(spec.run.source(document, "run", "key"), problems);
    run.fields(fields);
    fields.finish();
    settings.run_written = fields.written();
  }
  const auto gives = [&](const char* key) {  // even if wrongly
    const auto it = spec.run.values().find(key);
    return it != spec.run.values().end() && !it->is_null();
  };
  if (!gives("steps") && !gives("passes") && !gives("minutes")) {
    problems.push_back(
        {spec.run.origin().place(document), "run needs at least one of \"steps\", \"passes\" and \"minutes\""});
  }
  if (run.passes.value_or(0) > 1 && run.end_rule() != "restart") {
    problems.push_back({spec.run.origin_of("on_end").place(document),
                        fmt::format("run: several \"passes\" mean that streams restart; \"on_end\" cannot be {}",
                                    in_quotes(run.on_end))});
  }
  if (run.burn_in > 0 && run.state == "zero") {
    problems.push_back({spec.run.origin_of("burn_in").place(document),
                        "run: \"burn_in\" moves a carried state; it needs \"state\": \"carry\""});
  }
  settings.run_written["on_end"] = run.end_rule();

  if (spec.has_evaluate) {
    settings.evaluate.emplace();
    Fields fields(spec.evaluate.source(document, "evaluate", "key"), problems);
    evaluate_fields(fields, *settings.evaluate);
    fields.finish();
  }

  settings.models_written = ordered_json::object();
  std::vector<std::string> names;
  for (const PartType& type : registry.models) names.push_back(type.name);
  const std::size_t before = problems.size();
  for (const ModelSpec& model : spec.models) {
    const auto type_name = model.values.values().find("type");
    const bool named = type_name != model.values.values().end() && type_name->is_string();
    const PartType* type = named ? registry.find_model(type_name->get<std::string>()) : nullptr;
    if (named && !type) {
      problems.push_back({model.values.origin_of("type").place(document),
                          fmt::format("no model type is named {}{}", shown(*type_name),
                                      did_you_mean(type_name->get<std::string>(), names))});
      continue;
    }
    PlanModel& result = settings.models.emplace_back();
    result.name = model.name;
    result.place = model.values.origin().place(document);
    Fields fields(model.values.source(document, type ? type->name : "model " + in_quotes(model.name)), problems);
    fields.add("type", result.type, "what it is").required();
    if (!type) continue;
    if (type->fields) type->fields(fields);
    fields.finish();
    result.params = fields.resolved();
    result.params.erase("type");
    settings.models_written[model.name] = fields.written();
  }
  settings.models_sound = problems.size() == before;
  return settings;
}

Draft draft(const Spec& spec, const Settings& settings, const Wiring& wiring, bool evaluating, const Document& document,
            std::vector<Problem>& problems) {
  Draft result;
  Plan& plan = result.plan;
  plan.name = spec.name;
  plan.models = settings.models;
  plan.run = settings.run;
  plan.evaluate = settings.evaluate;
  plan.evaluating = evaluating;
  plan.end_rule = evaluating ? "mask" : settings.run.end_rule();
  plan.edges = wiring.edges;
  const std::size_t n = wiring.instances.size();
  plan.nodes.resize(n);
  result.written.resize(n, ordered_json::object());
  result.broken.resize(n, false);

  std::optional<Parameters> parameters;
  for (std::size_t i = 0; i < n; ++i) {
    const Instance& instance = wiring.instances[i];
    PlanNode& node = plan.nodes[i];
    node.id = instance.id;
    node.base = instance.node < 0 ? instance.id : spec.nodes[instance.node].id;
    node.instance = instance.instance;
    node.type = instance.type;
    node.device = instance.device;
    if (!node.type) {
      result.broken[i] = true;
      continue;
    }
    node.outputs.resize(node.type->outputs.size());
    node.signatures.resize(node.type->outputs.size());
    if (instance.node < 0) {
      node.place = document.place("/evaluate");
      read_params(node, result.written[i], Written(), document, problems);
      continue;
    }
    const NodeSpec& written = spec.nodes[instance.node];
    node.place = written.origin.place(document);
    if (instance.instance == 0) parameters.emplace(written, document, problems);
    const bool sound =
        read_params(node, result.written[i], parameters->of(instance.instance, evaluating), document, problems);
    result.broken[i] = !sound || !parameters->sound() || (node.type->role == Role::kCompute && !settings.models_sound);
  }
  for (int e = 0; e < static_cast<int>(plan.edges.size()); ++e) {
    const PlanEdge& edge = plan.edges[e];
    plan.nodes[edge.to].inputs.push_back(e);
    plan.nodes[edge.from].outputs[edge.from_port].push_back(e);
  }
  return result;
}

void infer(Draft& draft, std::vector<Problem>& problems) {
  Plan& plan = draft.plan;
  std::set<std::pair<std::string, std::string>> told;  // place and rule; the first instance of a node speaks for all
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& node = plan.nodes[i];
    std::vector<Signature> inputs;
    for (const int e : node.inputs) {
      const PlanEdge& edge = plan.edges[e];
      if (edge.initial > 0) {
        inputs.emplace_back();
      } else {
        if (draft.broken[edge.from]) draft.broken[i] = true;
        inputs.push_back(plan.nodes[edge.from].signatures[edge.from_port]);
      }
    }
    if (draft.broken[i] || !node.type->infer) continue;
    std::vector<Problem> own;
    InferContext context(plan, node, std::move(inputs), own);
    try {
      node.type->infer(context);
    } catch (const Error& error) {
      if (error.exit() != Exit::kPipeline && error.exit() != Exit::kData) throw;
      own.push_back({node.place, error.what(), error.exit()});
    }
    if (node.signatures.size() != node.type->outputs.size()) {
      throw Error(Exit::kInternal, "node type " + node.type->name + " does not tell one signature an output");
    }
    draft.broken[i] = !own.empty();
    for (Problem& problem : own) {
      if (told.emplace(problem.place.at + problem.place.pointer, without_digits(problem.rule)).second) {
        problems.push_back(std::move(problem));
      }
    }
  }
}

Plan seal(Draft draft, const Spec& spec, const Settings& settings) {
  draft.plan.expanded = expanded_of(draft, spec, settings);
  draft.plan.digest = sha256_hex(kFormat + draft.plan.expanded.dump());
  return std::move(draft.plan);
}

}  // namespace lanewise
