#include "graph/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/plan.h"
#include "graph/read.h"

namespace lanewise {
namespace {

using nlohmann::ordered_json;

ordered_json object_of(const std::vector<FieldInfo>& infos);

// A bound as a whole number where it is one.
ordered_json number_of(double bound) {
  const auto whole = static_cast<std::int64_t>(bound);
  return static_cast<double>(whole) == bound ? ordered_json(whole) : ordered_json(bound);
}

// A scalar's type and bounds; for a list, those of its elements.
ordered_json scalar_of(const FieldInfo& info, const std::string& type) {
  ordered_json json;
  const std::string name = type.starts_with("integer")  ? "integer"
                           : type.starts_with("number") ? "number"
                           : type.starts_with("true")   ? "boolean"
                           : type == "any"              ? ""
                                                        : "string";
  if (!name.empty()) json["type"] = info.optional ? ordered_json{name, "null"} : ordered_json(name);
  if (info.low) json[info.low_open ? "exclusiveMinimum" : "minimum"] = number_of(*info.low);
  if (info.high) json[info.high_open ? "exclusiveMaximum" : "maximum"] = number_of(*info.high);
  if (!info.choices.empty()) {
    ordered_json& choices = json["enum"] = info.choices;
    if (info.optional) choices.push_back(nullptr);
    const ordered_json fallback = info.fallback;
    const bool listed = std::find(choices.begin(), choices.end(), fallback) != choices.end();
    if (fallback.is_string() && !listed) choices.push_back(fallback);
  }
  return json;
}

ordered_json field_of(const FieldInfo& info) {
  constexpr std::string_view kList = "list of ";
  ordered_json json;
  if (info.type == "group") {
    json = object_of(info.group);
  } else if (info.type.starts_with(kList)) {
    json = {{"type", "array"}, {"items", scalar_of(info, info.type.substr(kList.size()))}};
  } else {
    json = scalar_of(info, info.type);
  }
  json["description"] = info.help + (info.unit.empty() ? "" : ", in " + info.unit);
  if (!info.fallback.is_null() && info.type != "any") json["default"] = info.fallback;
  return json;
}

ordered_json properties_of(const std::vector<FieldInfo>& infos) {
  ordered_json properties = ordered_json::object();
  for (const FieldInfo& info : infos) properties[info.name] = field_of(info);
  return properties;
}

ordered_json object_of(const std::vector<FieldInfo>& infos) {
  ordered_json json{{"type", "object"}, {"properties", properties_of(infos)}, {"additionalProperties", false}};
  for (const FieldInfo& info : infos) {
    if (info.required) json["required"].push_back(info.name);
  }
  return json;
}

// What "each" may say of each parameter: a list with one value an instance, or a number to count from.
ordered_json each_of(const std::vector<FieldInfo>& infos) {
  ordered_json properties = ordered_json::object();
  for (const FieldInfo& info : infos) {
    if (info.type == "group") continue;
    ordered_json one{{"type", "array"}, {"items", field_of(info)}};
    properties[info.name] = info.type == "integer" || info.type == "number"
                                ? ordered_json{{"anyOf", ordered_json::array({one, {{"type", info.type}}})}}
                                : one;
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

std::string join(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "" : ", ") + port.name + (port.many ? " (any number)" : "");
  return text.empty() ? "none" : text;
}

// An object whose other keys depend on its "type": one if-then a definition.
ordered_json choose(const std::string& prefix, const std::vector<std::string>& names) {
  ordered_json rules = ordered_json::array();
  for (const std::string& name : names) {
    rules.push_back(
        {{"if", {{"properties", {{"type", {{"const", name}}}}}}}, {"then", {{"$ref", "#/$defs/" + prefix + name}}}});
  }
  return rules;
}

ordered_json ref(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

}  // namespace

ordered_json schema(const Registry& registry) {
  ordered_json definitions = ordered_json::object();
  std::vector<std::string> node_names, model_names;
  for (const NodeType& type : registry.nodes) {
    if (!type.internal) node_names.push_back(type.name);
  }
  for (const PartType& type : registry.models) model_names.push_back(type.name);

  ordered_json node = object_of(describe([](Fields& f) {
    nlohmann::json params, each;
    NodeSpec().fields(f, &params, &each);
  }));
  node["properties"]["type"] = {{"enum", node_names}, {"description", "what it does"}};
  node["properties"]["in"]["type"] = "array";
  node["properties"]["in"]["items"] = ref("input");
  node["properties"]["params"]["type"] = "object";
  node["properties"]["each"]["type"] = "object";
  node["allOf"] = choose("node.", node_names);
  definitions["node"] = std::move(node);
  definitions["input"] = object_of(describe([](Fields& f) { InputSpec().fields(f); }));
  definitions["run"] = object_of(run_infos());
  definitions["run"]["anyOf"] =
      ordered_json::array({{{"required", {"steps"}}}, {{"required", {"passes"}}}, {{"required", {"minutes"}}}});
  ordered_json evaluate = object_of(evaluate_infos());
  evaluate["properties"]["set"] = {
      {"type", "object"}, {"description", "parameters that differ in the evaluation: \"node.parameter\": value"}};
  definitions["evaluate"] = std::move(evaluate);
  definitions["model"] = {{"type", "object"},
                          {"properties", {{"type", {{"enum", model_names}, {"description", "what it is"}}}}},
                          {"required", {"type"}},
                          {"allOf", choose("model.", model_names)}};

  for (const NodeType& type : registry.nodes) {
    if (type.internal) continue;
    const std::vector<FieldInfo> infos = describe(type.fields);
    ordered_json params{{"type", "object"}, {"properties", properties_of(infos)}, {"additionalProperties", false}};
    ordered_json properties{{"params", std::move(params)}, {"each", each_of(infos)}};
    if (!type.has_device) properties["device"] = false;
    definitions["node." + type.name] = {
        {"description", fmt::format("{}. Inputs: {}. Outputs: {}.", type.help, join(type.inputs), join(type.outputs))},
        {"properties", std::move(properties)}};
  }
  for (const PartType& type : registry.models) {
    ordered_json properties = properties_of(describe(type.fields));
    properties["type"] = true;
    definitions["model." + type.name] = {
        {"description", type.help}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  }

  ordered_json json = object_of(describe([](Fields& f) { TopKeys().fields(f); }));
  json.erase("required");
  json["anyOf"] = ordered_json::array({{{"required", {"nodes"}}}, {{"required", {"base"}}}});
  ordered_json& properties = json["properties"];
  properties.update(properties_of(describe([](Fields& f) { BaseKeys().fields(f); })));
  for (const char* changes : {"swap", "set"}) properties[changes]["type"] = "object";
  properties["models"] = {
      {"type", "object"}, {"additionalProperties", ref("model")}, {"description", "by name: what is trained"}};
  properties["nodes"]["type"] = "array";
  properties["nodes"]["items"] = ref("node");
  for (const char* section : {"run", "evaluate"}) properties[section].update(ref(section));
  ordered_json whole{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "lanewise pipeline"}};
  whole.update(json);
  whole["$defs"] = std::move(definitions);
  return whole;
}

}  // namespace lanewise
