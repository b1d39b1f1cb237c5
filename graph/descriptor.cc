#include "graph/descriptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "graph/document.h"
#include "graph/json_differences.h"
#include "graph/plan.h"
#include "graph/read.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;
using nlohmann::ordered_json;

constexpr const char *kNode = "node type", *kModel = "model", *kLoss = "loss";
constexpr std::array kRoles = {Role::kSource, Role::kPerSample, Role::kJoin, Role::kCompute,
                               Role::kReduce, Role::kOptimizer, Role::kSink};

ordered_json json_of(const FieldInfo& info) {
  ordered_json json = {{"name", info.name},        {"type", info.type},         {"help", info.help},
                       {"unit", info.unit},        {"required", info.required}, {"optional", info.optional},
                       {"default", info.fallback}, {"bounds", info.bounds()}};
  if (info.low) json[info.low_open ? "above" : "at_least"] = *info.low;
  if (info.high) json[info.high_open ? "below" : "at_most"] = *info.high;
  if (!info.choices.empty()) json["choices"] = info.choices;
  for (const FieldInfo& inner : info.group) json["fields"].push_back(json_of(inner));
  return json;
}

ordered_json parameters_of(const std::function<void(Fields&)>& fields) {
  ordered_json list = ordered_json::array();
  for (const FieldInfo& info : describe(fields)) list.push_back(json_of(info));
  return list;
}

// Calls use(variable) with one of the type that `info` names, as a parameter is read into. False: it names none.
template <class F>
bool with_variable(const FieldInfo& info, const F& use) {
  const auto one = [&](auto variable) { return use(variable), true; };
  if (info.optional) {
    if (info.type == "integer") return one(std::optional<std::int64_t>());
    if (info.type == "number") return one(std::optional<double>());
    return info.type == "text" && one(std::optional<std::string>());
  }
  if (info.type == "integer") return info.low == 0.0 && !info.low_open ? one(std::uint64_t{}) : one(std::int64_t{});
  if (info.type == "number") return one(double{});
  if (info.type == "text") return one(std::string());
  if (info.type == "file") return one(Path());
  if (info.type == "true or false") return one(false);
  if (info.type == "any") return one(Json());
  if (info.type == "list of integers") return one(std::vector<std::int64_t>());
  if (info.type == "list of numbers") return one(std::vector<double>());
  return info.type == "list of texts" && one(std::vector<std::string>());
}

// The default into the variable. Requires: it is of that type.
template <class T>
void fill(T& variable, const Json& fallback) {
  if (!fallback.is_null()) variable = fallback.get<T>();
}
void fill(Path& variable, const Json& fallback) {
  if (!fallback.is_null()) variable.text = fallback.get<std::string>();
}
template <class T>
void fill(std::optional<T>& variable, const Json& fallback) {
  if (!fallback.is_null()) variable = fallback.get<T>();
}

// Tells one parameter as the type itself would.
void tell(Fields& f, const FieldInfo& info) {
  if (info.type == "group") {
    return f.group(info.name, info.help, [&](Fields& g) {
      for (const FieldInfo& inner : info.group) tell(g, inner);
    });
  }
  with_variable(info, [&](auto& variable) {
    fill(variable, info.fallback);
    Field field = f.add(info.name, &variable, info.help).unit(info.unit);
    if (info.low && info.high && !info.low_open && !info.high_open) {
      field.between(*info.low, *info.high);
    } else {
      if (info.low) info.low_open ? field.above(*info.low) : field.at_least(*info.low);
      if (info.high) info.high_open ? field.below(*info.high) : field.at_most(*info.high);
    }
    if (!info.choices.empty()) field.one_of(info.choices);
    if (info.required) field.required();
  });
}

std::function<void(Fields&)> teller(std::vector<FieldInfo> infos) {
  return [infos = std::move(infos)](Fields& f) {
    for (const FieldInfo& info : infos) tell(f, info);
  };
}

// The keys of the objects of a descriptor file.
struct ParameterKeys {
  FieldInfo info;
  std::string bounds;  // follows from the others
  Json inner = Json::array();
  std::optional<double> at_least, above, at_most, below;

  void fields(Fields& f) {
    f.add("name", info.name, "what a pipeline calls it").required();
    f.add("type", info.type, "what it takes").required();
    f.add("help", info.help, "what it is").required();
    f.add("unit", info.unit, "of its values");
    f.add("required", info.required, "it has to be given");
    f.add("optional", info.optional, "null is allowed, and means that it is absent");
    f.add("default", info.fallback, "the value where it is not given");
    f.add("bounds", bounds, "the bounds as text");
    f.add("at_least", at_least, "the least value");
    f.add("above", above, "every value is greater");
    f.add("at_most", at_most, "the greatest value");
    f.add("below", below, "every value is less");
    f.add("choices", info.choices, "the only values");
    f.add("fields", inner, "those of a group");
  }
};

struct PortKeys {
  Port port;
  void fields(Fields& f) {
    f.add("name", port.name, "of the port").required();
    f.add("carries", port.carries, "what travels through it")
        .one_of({"sample", "batch", "prediction", "gradient", "reduced", "weights", "step"})
        .required();
    f.add("many", port.many, "it takes any number of edges");
  }
};

struct TypeKeys {
  std::string kind, name, help, role = "per-sample", shapes = "run";
  bool device = false;
  Json inputs = Json::array(), outputs = Json::array(), parameters = Json::array();

  void fields(Fields& f) {
    std::vector<std::string> roles;
    for (const Role one : kRoles) roles.push_back(to_string(one));
    f.add("kind", kind, "what it is").one_of({kNode, kModel, kLoss}).required();
    f.add("name", name, "what a pipeline calls it").required();
    f.add("help", help, "what it does").required();
    f.add("role", role, "of a node type").one_of(roles);
    f.add("device", device, "it takes \"device\"");
    f.add("shapes", shapes, "what its outputs carry").one_of({"same", "run"});
    f.add("inputs", inputs, "its ports");
    f.add("outputs", outputs, "its ports");
    f.add("parameters", parameters, "what it is told");
  }
};

class Reader {
 public:
  Reader(const Document& document, std::vector<Problem>& problems) : document_(document), problems_(problems) {}

  void read(Types& types) {
    if (!document_.root().is_array()) return problem("", "the file must be a list of types");
    for (std::size_t i = 0; i < document_.root().size(); ++i) read_type(types, document_.root()[i], pointer_to(i));
  }

 private:
  void problem(const std::string& pointer, const std::string& rule) {
    problems_.push_back({document_.place(pointer), rule});
  }

  template <class T>
  T object(const Json& value, const std::string& pointer, const std::string& what) {
    T keys;
    read_object(value, {pointer, ""}, what, document_, problems_, [&](Fields& f) { keys.fields(f); });
    return keys;
  }

  // Calls each(element, pointer) for the elements of a list.
  template <class F>
  void list(const Json& value, const std::string& pointer, const F& each) {
    if (!value.is_array()) return problem(pointer, fmt::format("this must be a list, not {}", shown(value)));
    for (std::size_t i = 0; i < value.size(); ++i) each(value[i], pointer + pointer_to(i));
  }

  std::vector<Port> ports(const Json& value, const std::string& pointer) {
    std::vector<Port> ports;
    list(value, pointer,
         [&](const Json& one, const std::string& at) { ports.push_back(object<PortKeys>(one, at, "port").port); });
    return ports;
  }

  std::vector<FieldInfo> parameters(const Json& value, const std::string& pointer) {
    std::vector<FieldInfo> infos;
    std::set<std::string> names;
    list(value, pointer, [&](const Json& one, const std::string& at) {
      auto keys = object<ParameterKeys>(one, at, "parameter");
      FieldInfo& info = keys.info;
      info.low = keys.at_least ? keys.at_least : keys.above;
      info.high = keys.at_most ? keys.at_most : keys.below;
      info.low_open = keys.above && !keys.at_least;
      info.high_open = keys.below && !keys.at_most;
      if (info.type == "group") info.group = parameters(keys.inner, at + "/fields");
      if (!names.insert(info.name).second) problem(at, fmt::format("{} is there twice", in_quotes(info.name)));
      check_default(info, at);
      infos.push_back(std::move(info));
    });
    return infos;
  }

  // What is read by `info` must be able to hold its default.
  void check_default(const FieldInfo& info, const std::string& pointer) {
    if (info.type == "group" || info.type.empty()) return;
    const bool may_lack = info.required || info.optional || info.type == "any";
    std::vector<Problem> own;
    const Json values = {{info.name, info.fallback}};
    const bool known = with_variable(info, [&](auto& variable) {
      if (info.fallback.is_null() && may_lack) return;
      Fields fields({&values, "parameter", [](const std::string&) { return Place{}; },
                     [](const std::string&) { return std::string(); }},
                    own);
      fields.add(info.name, &variable, "");
    });
    if (!known) {
      problem(pointer + "/type", fmt::format("{}: no parameter is {} {}", in_quotes(info.name),
                                             info.optional ? "an optional" : "a", in_quotes(info.type)));
    } else if (!own.empty()) {
      problem(pointer + "/default",
              fmt::format("{}: the default does not suit its type: {}", in_quotes(info.name), own.front().rule));
    }
  }

  void read_type(Types& types, const Json& value, const std::string& pointer) {
    const std::size_t before = problems_.size();
    const auto keys = object<TypeKeys>(value, pointer, "type");
    const auto infos = parameters(keys.parameters, pointer + "/parameters");
    std::vector<Port> inputs = ports(keys.inputs, pointer + "/inputs"),
                      outputs = ports(keys.outputs, pointer + "/outputs");
    if (keys.shapes == "same" && (inputs.empty() || outputs.empty()))
      problem(pointer + "/shapes", "\"same\" needs an input whose shapes the outputs can have");
    if (problems_.size() != before) return;
    if (keys.kind != kNode) {
      (keys.kind == kModel ? types.models : types.losses).push_back({keys.name, keys.help, teller(infos)});
      return;
    }
    NodeType type;
    type.name = keys.name;
    type.help = keys.help;
    type.role = *std::ranges::find(kRoles, keys.role, [](Role role) { return to_string(role); });
    type.inputs = std::move(inputs);
    type.outputs = std::move(outputs);
    type.fields = teller(infos);
    type.has_device = keys.device;
    type.same_shapes = keys.shapes == "same";
    type.infer = type.same_shapes ? infer_same : infer_unknown;
    type.make = [name = keys.name](const NodeContext&) -> std::unique_ptr<Node> {
      throw Error(Exit::kInternal, fmt::format("{} is only described, and was not loaded", name));
    };
    types.nodes.push_back(std::move(type));
  }

  // Only the streams are known: a source's own, else those of all inputs.
  static void infer_unknown(InferContext& context) {
    Signature signature;
    if (context.node.type->role == Role::kSource) signature.streams = {context.node.id};
    for (const Signature& input : context.inputs) {
      signature.streams.insert(signature.streams.end(), input.streams.begin(), input.streams.end());
      signature.endless = signature.endless || input.endless;
    }
    context.node.signatures.assign(context.node.type->outputs.size(), signature);
  }

  const Document& document_;
  std::vector<Problem>& problems_;
};

// The list as an object, by kind and name.
Json by_name(const Json& list) {
  Json result = Json::object();
  for (const Json& type : list) {
    Json& entry = result[type.value("kind", "") + " " + type.value("name", "")] = type;
    Json parameters = Json::object();
    for (const Json& parameter : type.value("parameters", Json::array()))
      parameters[parameter.value("name", "")] = parameter;
    entry["parameters"] = std::move(parameters);
  }
  return result;
}

}  // namespace

void infer_same(InferContext& context) {
  context.node.signatures.assign(context.node.type->outputs.size(), context.inputs.at(0));
}

ordered_json descriptor_of(const NodeType& type) {
  const auto ports = [](const std::vector<Port>& list) {
    ordered_json json = ordered_json::array();
    for (const Port& p : list) json.push_back({{"name", p.name}, {"carries", p.carries}, {"many", p.many}});
    return json;
  };
  return {{"kind", kNode},
          {"name", type.name},
          {"help", type.help},
          {"role", to_string(type.role)},
          {"device", type.has_device},
          {"shapes", type.same_shapes ? "same" : "run"},
          {"inputs", ports(type.inputs)},
          {"outputs", ports(type.outputs)},
          {"parameters", parameters_of(type.fields)}};
}

ordered_json descriptor_of(const PartType& type, const std::string& kind) {
  return {{"kind", kind}, {"name", type.name}, {"help", type.help}, {"parameters", parameters_of(type.fields)}};
}

ordered_json descriptors_of(const Types& types) {
  ordered_json list = ordered_json::array();
  for (const NodeType& type : types.nodes) list.push_back(descriptor_of(type));
  for (const PartType& type : types.models) list.push_back(descriptor_of(type, kModel));
  for (const PartType& type : types.losses) list.push_back(descriptor_of(type, kLoss));
  return list;
}

Types read_descriptors(const std::string& text, const std::string& file, std::vector<Problem>& problems) {
  Types types;
  const Document document(text, file, problems);
  if (document.complete()) Reader(document, problems).read(types);
  return types;
}

std::vector<std::string> descriptor_differences(const Json& before, const Json& now) {
  std::vector<std::string> lines;
  visit_differences("", by_name(before), by_name(now), [&](const std::string& where, const Json* a, const Json* b) {
    lines.push_back(!a   ? where + ": only in the library"
                    : !b ? where + ": not in the library"
                         : fmt::format("{}: {} -> {}", where, a->dump(), b->dump()));
  });
  return lines;
}

}  // namespace lanewise
