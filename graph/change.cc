#include "graph/change.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

// "gen.rows" or "run.metrics.every", split at the dots.
struct Target {
  std::string id;
  std::vector<std::string> path;
};

// nullopt: it has no dot, or nothing between two.
std::optional<Target> parse_target(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (parts.size() < 2 || std::find(parts.begin(), parts.end(), "") != parts.end()) return std::nullopt;
  return Target{parts[0], {parts.begin() + 1, parts.end()}};
}

const FieldInfo* find_info(const std::vector<FieldInfo>& infos, const std::vector<std::string>& path,
                           std::size_t step = 0) {
  for (const FieldInfo& info : infos) {
    if (info.name != path[step]) continue;
    return step + 1 == path.size() ? &info : find_info(info.group, path, step + 1);
  }
  return nullptr;
}

// The value that a text stands for in a field: text as it is, all else as JSON. What is no JSON stays text, which the
// field then refuses by its own rule.
Json value_of(const std::string& text, const FieldInfo* info) {
  if (!info || info->type == "text" || info->type == "file") return text;
  std::vector<Problem> problems;
  const Document document(text, "", problems);
  return problems.empty() ? document.root() : Json(text);
}

class Changer {
 public:
  Changer(Spec& spec, const Document& document, const Registry& registry, std::vector<Problem>& problems,
          std::vector<std::string>& notes)
      : spec_(spec), document_(document), registry_(registry), problems_(problems), notes_(notes) {}

  void swap(const Override& change);
  void find_types();
  void set(const Override& change);
  void set_for_evaluation();

 private:
  void problem(const Origin& origin, const std::string& rule) { problems_.push_back({origin.place(document_), rule}); }
  void set_for_evaluation(const std::string& key, const std::string* text, const Json& value, const Origin& origin);

  Spec& spec_;
  const Document& document_;
  const Registry& registry_;
  std::vector<Problem>& problems_;
  std::vector<std::string>& notes_;
};

struct SwapKeys {
  std::string type;
  Json params = Json::object(), each = Json::object();
  void fields(Fields& f) {
    f.add("type", type, "the new type").required();
    f.add("params", params, "its parameters");
    f.add("each", each, "its parameters that differ from instance to instance");
  }
};

void Changer::swap(const Override& change) {
  const std::string& text = change.text;
  std::size_t equals = text.find('=');
  const auto opens = [&](std::size_t at) {
    const std::size_t next = text.find_first_not_of(" \t\n", at + 1);
    return next != std::string::npos && text[next] == '{';
  };
  while (equals != std::string::npos && !opens(equals)) equals = text.find('=', equals + 1);
  if (equals == std::string::npos || equals == 0) {
    throw Error(Exit::kCommandLine,
                fmt::format("--swap {}: write it as 'ID={{\"type\":\"TYPE\",\"params\":{{…}}}}'", escaped(text)));
  }
  const std::string id = text.substr(0, equals), option = "--swap " + id;
  std::vector<Problem> faults;
  const Document value(text.substr(equals + 1), option, faults);
  if (!faults.empty()) {
    throw Error(Exit::kCommandLine, fmt::format("{}: {}", escaped(faults.front().place.at), faults.front().rule));
  }
  const auto ref = spec_.find(id);
  if (!ref) return problem({"", option, change.folder}, spec_.unknown(id));
  NodeSpec& node = spec_.nodes[ref->node];
  if (ref->instance >= 0) {
    return problem({"", option, change.folder}, fmt::format("{} is one instance of {}; swap {} as a whole",
                                                            in_quotes(id), in_quotes(node.id), in_quotes(node.id)));
  }
  const Written written(value.root(), {"", option, change.folder});
  SwapKeys keys;
  Fields fields(written.source(document_, "--swap", "key"), problems_);
  keys.fields(fields);
  fields.finish();
  for (auto [key, object] : {std::pair{"params", &keys.params}, std::pair{"each", &keys.each}}) {
    if (object->is_object()) continue;
    problem({"", option, change.folder}, fmt::format("--swap: \"{}\" must be an object, not {}", key, shown(*object)));
    *object = Json::object();
  }
  node.type_name = keys.type;
  node.params = std::move(keys.params);
  node.each = std::move(keys.each);
  node.type_origin = {"/type", option, change.folder};
  node.params_origin = {"/params", option, change.folder};
  node.each_origin = {"/each", option, change.folder};
  node.swapped = true;
}

void Changer::find_types() {
  std::vector<std::string> names;
  for (const NodeType& type : registry_.nodes) {
    if (!type.internal) names.push_back(type.name);
  }
  for (NodeSpec& node : spec_.nodes) {
    const NodeType* type = registry_.find_node(node.type_name);
    if (type && !type->internal) {
      node.type = type;
    } else if (!node.type_name.empty()) {
      problem(node.type_origin, fmt::format("no node type is named {}{}", in_quotes(node.type_name),
                                            did_you_mean(node.type_name, names)));
    }
  }
}

void Changer::set(const Override& change) {
  const std::string& text = change.text;
  const std::string option = "--set " + text;
  if (find_bad_utf8(text) != std::string::npos)
    throw Error(Exit::kCommandLine, escaped(option) + ": this is not UTF-8");
  if (text.starts_with("name=")) {
    spec_.name = text.substr(5);
    if (const std::string why = bad_name(spec_.name); !why.empty()) problem({"", option, change.folder}, why);
    return;
  }
  const std::size_t dot = text.find('.'), equals = dot == std::string::npos ? dot : text.find('=', dot);
  const auto target = equals == std::string::npos ? std::nullopt : parse_target(text.substr(0, equals));
  if (!target) {
    throw Error(Exit::kCommandLine,
                escaped(option) + ": write it as ID.PARAMETER=VALUE, run.NAME=VALUE or models.NAME.PARAMETER=VALUE");
  }
  const std::string value = text.substr(equals + 1);
  const Origin origin{"", option, change.folder};
  const auto& [id, path] = *target;

  if (id == "run") {
    const auto infos = describe([](Fields& f) { RunSettings().fields(f); });
    return spec_.run.set(path, value_of(value, find_info(infos, path)), origin);
  }
  if (id == "evaluate") {
    spec_.has_evaluate = true;
    if (path[0] == "set") {
      const std::string key = text.substr(0, equals).substr(std::string("evaluate.set.").size() - (path.size() == 1));
      return set_for_evaluation(key, &value, Json(), origin);
    }
    const auto infos = describe([](Fields& f) {
      EvaluateSettings settings;
      evaluate_fields(f, settings);
    });
    return spec_.evaluate.set(path, value_of(value, find_info(infos, path)), origin);
  }
  if (id == "models") {
    std::vector<std::string> names;
    for (ModelSpec& model : spec_.models) {
      names.push_back(model.name);
      if (model.name != path[0] || path.size() == 1) continue;
      const std::vector<std::string> rest(path.begin() + 1, path.end());
      const auto type = model.values.values().find("type");
      const PartType* part = type != model.values.values().end() && type->is_string()
                                 ? registry_.find_model(type->get<std::string>())
                                 : nullptr;
      const auto infos = describe(part ? part->fields : nullptr);
      return model.values.set(rest, rest[0] == "type" ? Json(value) : value_of(value, find_info(infos, rest)), origin);
    }
    if (std::find(names.begin(), names.end(), path[0]) != names.end()) {
      throw Error(Exit::kCommandLine,
                  escaped(option) + ": a model is set by its parameters, models.NAME.PARAMETER=VALUE");
    }
    return problem(origin, fmt::format("no model is named {}{}", in_quotes(path[0]), did_you_mean(path[0], names)));
  }
  const auto ref = spec_.find(id);
  if (!ref) return problem(origin, spec_.unknown(id, {"run", "models", "evaluate"}));
  NodeSpec& node = spec_.nodes[ref->node];
  if (path == std::vector<std::string>{"device"}) {
    node.device_changes.push_back({ref->instance, path, value, origin});
  } else if (node.type) {
    const auto infos = describe(node.type->fields);
    node.changes.push_back({ref->instance, path, value_of(value, find_info(infos, path)), origin});
  }
}

void Changer::set_for_evaluation() {
  for (const auto& [key, value] : spec_.evaluate_set.items()) {
    set_for_evaluation(key, nullptr, value, {"/evaluate/set" + pointer_to(key), ""});
  }
}

// One change of the evaluation's plan: a value, or a text that the field's type reads.
void Changer::set_for_evaluation(const std::string& key, const std::string* text, const Json& value,
                                 const Origin& origin) {
  const auto target = parse_target(key);
  if (!target)
    return problem(origin, fmt::format("evaluate.set: {} must be of the form \"node.parameter\"", in_quotes(key)));
  const auto ref = spec_.find(target->id);
  if (!ref) return problem(origin, "evaluate.set: " + spec_.unknown(target->id));
  NodeSpec& node = spec_.nodes[ref->node];
  if (!node.type) return;
  const auto infos = describe(node.type->fields);
  const FieldInfo* info = find_info(infos, target->path);
  if (!info && node.swapped && origin.option.empty()) {
    notes_.push_back(fmt::format("dropped {} of evaluate.set: {}, put in by --swap, has no such parameter",
                                 in_quotes(key), node.type->name));
    return;
  }
  node.evaluate_changes.push_back({ref->instance, target->path, text ? value_of(*text, info) : value, origin});
}

}  // namespace

void apply_changes(Spec& spec, const std::vector<Override>& overrides, const Document& document,
                   const Registry& registry, std::vector<Problem>& problems, std::vector<std::string>& notes) {
  Changer changer(spec, document, registry, problems, notes);
  for (const Override& change : overrides) {
    if (change.kind == Override::Kind::kSwap) changer.swap(change);
  }
  changer.find_types();
  changer.set_for_evaluation();
  for (const Override& change : overrides) {
    if (change.kind == Override::Kind::kSet) changer.set(change);
  }
}

}  // namespace lanewise
