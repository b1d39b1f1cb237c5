#include "graph/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/key.h"
#include "graph/parameters.h"
#include "graph/swap.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;
using Act = ChangeKey::Act;

// The value that a text stands for in a field: text as it is, all else as JSON. What is no JSON stays text, which the
// field then refuses by its own rule.
Json value_of(const std::string& text, const FieldInfo* info) {
  if (!info || info->type == "text" || info->type == "file") return text;
  std::vector<Problem> problems;
  const Document document(text, "", problems);
  return problems.empty() ? document.root() : Json(text);
}

Json value_of(const Change& change, const FieldInfo* info) {
  return change.text ? value_of(*change.text, info) : change.value.value_or(nullptr);
}

// Where the value at a path was written; nullopt: there is none.
std::optional<Origin> origin_in(const Written& values, const std::vector<std::string>& path) {
  return values.find(path) ? std::optional(values.origin_of(relative_to(path))) : std::nullopt;
}

// What stands for a whole node or model. Throws Error(kCommandLine) for an option's text that is no JSON.
Json object_of(const Change& change) {
  if (!change.text) return change.value.value_or(nullptr);
  std::vector<Problem> faults;
  const Document parsed(*change.text, change.origin.option, faults);
  if (faults.empty()) return parsed.root();
  throw Error(Exit::kCommandLine, fmt::format("{}: {}", escaped(faults.front().place.at), faults.front().rule));
}

class Changer {
 public:
  explicit Changer(const Changing& changing) : changing_(changing) {}

  void apply(const Layer& layer, int index);
  void finish();

 private:
  void swap(const Change& change);
  void set_whole(const Change& change, const ChangeKey& key);
  void set(const Change& change, const ChangeKey& key);
  void set_in(Written& into, const std::string& owner, const std::vector<std::string>& path, const Change& change,
              Act act, const std::vector<FieldInfo>& infos);
  void set_model(const Change& change, const ChangeKey& key);
  void set_evaluate(const Change& change, const ChangeKey& key);
  void set_node(const Change& change, const ChangeKey& key);
  void set_for_evaluation(const EvaluateChange& change);
  void find_types(bool last);

  void problem(const Origin& origin, const std::string& rule) { changing_.problem(origin, rule); }
  // A change that cannot be read: an error of the command line, or a problem of a file.
  void malformed(const Change& change, const std::string& how);
  std::optional<ChangeKey> read_key(const Change& change);
  // The instances of a node that a key is about; nullopt: there are none, which is told.
  std::optional<ChosenInstances> find(const ChangeKey& key, const Origin& origin,
                                      const std::vector<std::string>& others, const std::string& owner);
  // "+" is for what is not given yet, "~" for what is: `given`, and there. False: it is the other way, which is told.
  bool may(Act act, const std::string& owner, const std::string& name, const std::optional<Origin>& given,
           const Origin& origin);
  ModelSpec* find_model(const std::string& name, const Origin& origin, const std::vector<std::string>& others = {});

  Changing changing_;
  Spec& spec_ = changing_.spec;
  const Document& document_ = changing_.document;
};

void Changer::malformed(const Change& change, const std::string& how) {
  if (change.origin.option.empty()) return problem(change.origin, fmt::format("{}: {}", in_quotes(change.key), how));
  throw Error(Exit::kCommandLine, fmt::format("{}: {}", escaped(change.origin.option), how));
}

std::optional<ChangeKey> Changer::read_key(const Change& change) {
  std::string why;
  std::optional<ChangeKey> key = parse_key(change.key, why);
  if (!key) {
    malformed(change, why);
    return std::nullopt;
  }
  const bool gives = change.text || (change.value && !change.value->is_null());
  if (key->act == Act::kRemove && gives) {
    malformed(change, change.text ? "\"~\" takes a value out; write it without \"=\""
                                  : "\"~\" takes a value out; write null in the place of a value");
    return std::nullopt;
  }
  if (key->act != Act::kRemove && !change.text && !change.value) {
    malformed(change, "write it as ID.PARAMETER=VALUE, run.NAME=VALUE or models.NAME.PARAMETER=VALUE");
    return std::nullopt;
  }
  return key;
}

std::optional<ChosenInstances> Changer::find(const ChangeKey& key, const Origin& origin,
                                             const std::vector<std::string>& others, const std::string& owner) {
  std::string why;
  const auto chosen = choose_instances(spec_, key, others, why);
  if (!chosen) problem(origin, owner + why);
  return chosen;
}

bool Changer::may(Act act, const std::string& owner, const std::string& name, const std::optional<Origin>& given,
                  const Origin& origin) {
  if (act == Act::kAdd && given) {
    problem(origin, fmt::format("{}: {} is given already ({}); without \"+\" it is replaced", owner, in_quotes(name),
                                given->place(document_).at));
    return false;
  }
  if (act == Act::kRemove && !given) {
    problem(origin, fmt::format("{}: {} is not given, so there is nothing to take out", owner, in_quotes(name)));
    return false;
  }
  return true;
}

ModelSpec* Changer::find_model(const std::string& name, const Origin& origin, const std::vector<std::string>& others) {
  std::vector<std::string> names = others;
  for (ModelSpec& model : spec_.models) {
    if (model.name == name) return &model;
    names.push_back(model.name);
  }
  problem(origin, fmt::format("no model is named {}{}", in_quotes(name), did_you_mean(name, names)));
  return nullptr;
}

void Changer::swap(const Change& change) {
  const auto key = read_key(change);
  if (!key) return;
  const Json value = object_of(change);
  if (key->act != Act::kSet || key->instances) {
    return malformed(change, "a swap is of a whole node, ID, or of a model, models.NAME");
  }
  if (key->id == "models" && key->path.size() == 1) {
    if (ModelSpec* model = find_model(key->path[0], change.origin)) swap_model(*model, change, value, changing_);
    return;
  }
  const auto ref = spec_.find(change.key);
  if (!ref) return problem(change.origin, spec_.unknown(change.key));
  NodeSpec& node = spec_.nodes[ref->node];
  if (ref->instance >= 0) {
    return problem(change.origin, fmt::format("{} is one instance of {}; swap {} as a whole", in_quotes(change.key),
                                              in_quotes(node.id), in_quotes(node.id)));
  }
  swap_node(node, change, value, changing_);
}

// Adds or takes out a node, a model or the section "evaluate".
void Changer::set_whole(const Change& change, const ChangeKey& key) {
  const bool is_model = key.id == "models";
  if (is_model && key.path.empty())
    return malformed(change, "models are added and taken out one by one, as +models.NAME and ~models.NAME");
  const std::string id = is_model ? key.path[0] : key.id;
  if (key.act == Act::kRemove) {
    if (key.id == "evaluate") {
      if (!spec_.has_evaluate) return problem(change.origin, "there is no \"evaluate\" to take out");
      spec_.has_evaluate = false;
      spec_.evaluate_set.clear();
      return;
    }
    if (is_model) {
      if (const ModelSpec* model = find_model(id, change.origin))
        spec_.models.erase(spec_.models.begin() + (model - spec_.models.data()));
      return;
    }
    const auto ref = spec_.find(id);
    if (!ref) return problem(change.origin, spec_.unknown(id, {"evaluate"}));
    const std::string& whole = spec_.nodes[ref->node].id;
    if (ref->instance >= 0 || key.instances) {
      return problem(change.origin, fmt::format("{} is a part of {}; take {} out as a whole, or change its "
                                                "\"repeat\" in the file",
                                                in_quotes(change.key.substr(1)), in_quotes(whole), in_quotes(whole)));
    }
    spec_.nodes.erase(spec_.nodes.begin() + ref->node);
    return fill_ids(spec_, document_, changing_.problems);
  }

  Json value = object_of(change);
  if (!value.is_object()) {
    return malformed(change, fmt::format("what is added must be an object, {{\"type\": …}}, not {}", shown(value)));
  }
  if (is_model) {
    for (const ModelSpec& model : spec_.models) {
      if (model.name != id) continue;
      return problem(change.origin, fmt::format("there is a model {} already ({})", in_quotes(id),
                                                model.values.origin().place(document_).at));
    }
    spec_.models.push_back({id, Written(value, change.origin)});
    return;
  }
  if (const auto ref = spec_.find(id)) {
    return problem(change.origin, fmt::format("there is a node {} already ({}); swap it, or set its parameters",
                                              in_quotes(id), spec_.nodes[ref->node].origin.place(document_).at));
  }
  if (value.contains("id")) return malformed(change, "the id of a node that is added is the key; take \"id\" out");
  value["id"] = id;
  spec_.nodes.push_back(read_node(value, change.origin, document_, changing_.problems));
  fill_ids(spec_, document_, changing_.problems);
}

void Changer::set_in(Written& into, const std::string& owner, const std::vector<std::string>& path,
                     const Change& change, Act act, const std::vector<FieldInfo>& infos) {
  if (!may(act, owner, fmt::format("{}", fmt::join(path, ".")), origin_in(into, path), change.origin)) return;
  if (act == Act::kRemove) return into.take(path, change.origin);
  into.set(path, value_of(change, find_field(infos, path)), change.origin);
}

void Changer::set_model(const Change& change, const ChangeKey& key) {
  ModelSpec* model = find_model(key.path[0], change.origin);
  if (!model) return;
  if (key.path.size() == 1) {
    return malformed(change, "a model is set by its parameters, models.NAME.PARAMETER=VALUE");
  }
  const std::vector<std::string> rest(key.path.begin() + 1, key.path.end());
  const PartType* const part = type_of_model(model->values, changing_.registry);
  std::vector<FieldInfo> infos = describe(part ? part->fields : nullptr);
  infos.emplace_back().name = "type";
  infos.back().type = "text";
  set_in(model->values, "models." + model->name, rest, change, key.act, infos);
}

void Changer::set_evaluate(const Change& change, const ChangeKey& key) {
  if (key.path[0] != "set") {
    spec_.has_evaluate = true;
    return set_in(spec_.evaluate, "evaluate", key.path, change, key.act, evaluate_infos());
  }
  const std::string name = key.path.size() == 1 ? "" : key.path[1];
  std::optional<Origin> given;
  for (const EvaluateChange& other : spec_.evaluate_set) {
    if (other.key == name) given = other.origin;
  }
  if (!may(key.act, "evaluate.set", name, given, change.origin)) return;
  if (key.act == Act::kRemove) {
    std::erase_if(spec_.evaluate_set, [&](const EvaluateChange& other) { return other.key == name; });
    return;
  }
  spec_.has_evaluate = true;
  spec_.evaluate_set.push_back({name, change.text, change.value.value_or(nullptr), change.origin, changing_.layer});
}

void Changer::set_node(const Change& change, const ChangeKey& key) {
  const auto found = find(key, change.origin, {"run", "models", "evaluate"}, "");
  if (!found) return;
  const auto& [index, instances] = *found;
  NodeSpec& node = spec_.nodes[index];
  if (key.path == std::vector<std::string>{"device"}) {
    std::optional<Origin> given;
    if (node.device) given = node.device_origin;
    for (const NodeChange& other : node.device_changes)
      given = other.value ? std::optional(other.origin) : std::nullopt;
    if (!may(key.act, node.id, "device", given, change.origin)) return;
    std::optional<Json> value;
    if (key.act != Act::kRemove) value = value_of(change, nullptr);
    if (value && !value->is_string()) {
      return problem(change.origin, fmt::format("{}: \"device\" must be text, not {}", node.id, shown(*value)));
    }
    node.device_changes.push_back({instances, key.path, value, change.origin});
    return;
  }
  if (!node.type) return;
  if (key.path == std::vector<std::string>{"type"} && find_field(describe(node.type->fields), key.path) == nullptr) {
    return problem(change.origin,
                   fmt::format("{}: a type is swapped, not set: --swap '{}={{\"type\":\"…\"}}', or \"swap\" of a "
                               "file with \"base\"",
                               node.id, node.id));
  }
  if (key.act != Act::kSet) {
    std::vector<Problem> told;  // of "each"; the plan tells them
    const Parameters parameters(node, document_, told);
    std::optional<Origin> given;  // in any of the instances
    for (std::int64_t i = instances.first; i <= std::min(instances.last, node.count() - 1) && !given; ++i) {
      given = origin_in(parameters.of(i, /*evaluating=*/false), key.path);
    }
    if (!may(key.act, node.id, key.rest, given, change.origin)) return;
  }
  std::optional<Json> value;
  if (key.act != Act::kRemove) value = value_of(change, find_field(describe(node.type->fields), key.path));
  node.changes.push_back({instances, key.path, std::move(value), change.origin});
}

void Changer::set(const Change& change, const ChangeKey& key) {
  if (key.id == "name" && key.path.empty()) {
    const Json value = value_of(change, nullptr);
    spec_.name = value.is_string() ? value.get<std::string>() : "";
    spec_.name_origin = change.origin;
    if (const std::string why = bad_name(spec_.name); !why.empty()) problem(change.origin, why);
    return;
  }
  if (key.path.empty()) {
    return malformed(change, "write it as ID.PARAMETER=VALUE, run.NAME=VALUE or models.NAME.PARAMETER=VALUE");
  }
  if (key.id == "run") {
    return set_in(spec_.run, "run", key.path, change, key.act, run_infos());
  }
  if (key.id == "evaluate") return set_evaluate(change, key);
  if (key.id == "models") return set_model(change, key);
  set_node(change, key);
}

// One change of the evaluation's plan.
void Changer::set_for_evaluation(const EvaluateChange& change) {
  std::string why;
  const auto key = parse_key(change.key, why);
  if (!key || key->path.empty()) {
    return problem(change.origin,
                   fmt::format("evaluate.set: {} must be of the form \"node.parameter\"", in_quotes(change.key)));
  }
  const auto found = find(*key, change.origin, {}, "evaluate.set: ");
  if (!found) return;
  NodeSpec& node = spec_.nodes[found->node];
  if (!node.type) return;
  const auto infos = describe(node.type->fields);
  const FieldInfo* info = find_field(infos, key->path);
  if (!info && node.swapped > change.layer) {
    changing_.notes.push_back(fmt::format("dropped {} of evaluate.set: {}, put in by a swap, has no such parameter",
                                          in_quotes(change.key), node.type->name));
    return;
  }
  std::optional<Json> value;
  if (key->act != Act::kRemove) value = change.text ? value_of(*change.text, info) : change.value;
  node.evaluate_changes.push_back({found->instances, key->path, std::move(value), change.origin});
}

// `last`: those that are unknown are told.
void Changer::find_types(bool last) {
  std::vector<std::string> names;
  for (const NodeType& type : changing_.registry.nodes) {
    if (!type.internal) names.push_back(type.name);
  }
  for (NodeSpec& node : spec_.nodes) {
    const NodeType* type = changing_.registry.find_node(node.type_name);
    node.type = type && !type->internal ? type : nullptr;
    if (last && !node.type && !node.type_name.empty()) {
      problem(node.type_origin, fmt::format("no node type is named {}{}", in_quotes(node.type_name),
                                            did_you_mean(node.type_name, names)));
    }
  }
}

void Changer::apply(const Layer& layer, int index) {
  changing_.layer = index;
  for (const Change& change : layer.swaps) swap(change);
  std::vector<std::pair<const Change*, ChangeKey>> sets;
  for (const Change& change : layer.sets) {
    const auto key = read_key(change);
    if (!key) continue;
    const bool whole = key->path.empty() ? key->id != "name" : key->id == "models" && key->path.size() == 1;
    if (whole && key->act != Act::kSet) {
      set_whole(change, *key);
    } else {
      sets.emplace_back(&change, *key);
    }
  }
  find_types(/*last=*/false);
  for (const auto& [change, key] : sets) set(*change, key);
}

void Changer::finish() {
  find_types(/*last=*/true);
  for (const EvaluateChange& change : spec_.evaluate_set) set_for_evaluation(change);
}

}  // namespace

void apply_changes(Spec& spec, const std::vector<Layer>& layers, const Document& document, const Registry& registry,
                   std::vector<Problem>& problems, std::vector<std::string>& notes) {
  Changer changer({spec, document, registry, problems, notes});
  for (std::size_t i = 0; i < layers.size(); ++i) changer.apply(layers[i], static_cast<int>(i));
  changer.finish();
}

}  // namespace lanewise
