#include "graph/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/key.h"
#include "graph/load.h"
#include "graph/parameters.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;
using Infos = std::vector<FieldInfo>;
using Steps = std::vector<Explained::Step>;

// Adds the keys of all fields.
void add_keys(const Infos& infos, const std::string& prefix, std::vector<std::string>& keys) {
  for (const FieldInfo& info : flattened(infos)) keys.push_back(prefix + info.name);
}

class Explainer {
 public:
  explicit Explainer(const Loaded& loaded) : loaded_(loaded) {}

  // The steps of one value of an object with these fields.
  Steps steps(const Written& values, const std::vector<std::string>& path, const FieldInfo& info) const {
    Steps steps{{"default", info.fallback, ""}};
    add_written(steps, values, path, info);
    return steps;
  }

  Explained::Step step(const Origin& origin, Json value) const {
    const Place place = origin.place(loaded_.nodes());
    return {place.at, std::move(value), place.pointer};
  }

 private:
  // What was written at the path before swaps, by them and after; what a swap kept is told once.
  void add_written(Steps& steps, const Written& values, const std::vector<std::string>& path,
                   const FieldInfo& info) const {
    if (values.replaced()) {
      add_written(steps, *values.replaced(), path, info);
      if (steps.size() > 1 && !values.find(path)) {
        steps.push_back(step(values.origin(), Json(info.fallback)));
        steps.back().what += " (does not fit)";
      }
    }
    const auto add = [&](Explained::Step step) {
      const auto same = [&](const Explained::Step& other) {
        return other.where == step.where && other.what == step.what;
      };
      if (std::none_of(steps.begin(), steps.end(), same)) steps.push_back(std::move(step));
    };
    const std::string relative = relative_to(path);
    if (const nlohmann::json* first = values.first(path)) add(step(values.origin().below(relative), Json(*first)));
    for (const Written::Change& change : values.changes()) {
      if (change.relative == relative) {
        Explained::Step one = step(change.origin, change.value ? Json(*change.value) : Json(info.fallback));
        if (!change.value) one.what += " (taken out)";
        add(std::move(one));
      } else if (change.value && relative.starts_with(change.relative + "/")) {
        const Written inner(*change.value, change.origin);
        const std::string rest = relative.substr(change.relative.size() + 1);
        if (const nlohmann::json* value = inner.find(pointer_steps("/" + rest))) {
          add(step(change.origin.below(rest), Json(*value)));
        }
      }
    }
  }

  const Loaded& loaded_;
};

Infos infos_of(const NodeSpec& node) { return describe(node.type->fields); }
Infos infos_of(const ModelSpec& model, const Registry& registry) {
  const PartType* const part = type_of_model(model.values, registry);
  Infos infos = describe(part ? part->fields : nullptr);
  infos.insert(infos.begin(), FieldInfo{.name = "type", .type = "text", .required = true});
  return infos;
}
[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw Error(Exit::kCommandLine, fmt::format("{}: {}", escaped(key), why));
}

const FieldInfo& need_info(const Infos& infos, const std::vector<std::string>& path, const std::string& owner,
                           const std::string& key) {
  std::vector<std::string> names;
  const FieldInfo* info = find_field(infos, path, &names);
  if (info && info->group.empty()) return *info;
  if (info) refuse(key, fmt::format("{} is a group; name one of its values", in_quotes(path.back())));
  refuse(key, fmt::format("{} has no value {}{}", owner, in_quotes(fmt::format("{}", fmt::join(path, "."))),
                          did_you_mean(path.back(), names)));
}

// Instances with the same steps together, in their order.
void add(std::vector<Explained>& list, const std::string& name, Steps steps, bool evaluating) {
  const auto same = [&](const Explained& other) {
    return other.evaluating == evaluating &&
           std::equal(other.steps.begin(), other.steps.end(), steps.begin(), steps.end(),
                      [](const Explained::Step& a, const Explained::Step& b) {
                        return a.where == b.where && a.value == b.value && a.what == b.what;
                      });
  };
  const auto it = std::find_if(list.begin(), list.end(), same);
  if (it != list.end()) {
    it->names.push_back(name);
  } else {
    list.push_back({{name}, std::move(steps), evaluating});
  }
}

// All problems of the pipeline come at once, as they do elsewhere.
Loaded load_sound(const std::string& text, const std::string& file, const Registry& base, const PlanOptions& options) {
  std::vector<Problem> problems;
  Loaded loaded = load(text, file, base, options, problems);
  plan_loaded(loaded, options, std::move(problems));
  return loaded;
}

std::vector<Explained> explain_node(const Loaded& loaded, const ChangeKey& key, const std::string& text) {
  const Explainer explainer(loaded);
  std::string why;
  const auto found = choose_instances(loaded.spec, key, {"run", "models", "evaluate", "name"}, why);
  if (!found) refuse(text, why);
  const auto& [index, chosen] = *found;
  const NodeSpec& node = loaded.spec.nodes[index];
  std::vector<Explained> list;
  std::vector<Problem> told;  // none: the plan was made
  const Parameters parameters(node, loaded.nodes(), told);
  const Infos infos = infos_of(node);
  for (std::int64_t i = chosen.first; i <= std::min(chosen.last, node.count() - 1); ++i) {
    const std::string name = fmt::format("{}.{}", node.instance_id(i), key.rest);
    if (key.path == std::vector<std::string>{"type"}) {
      Steps steps;
      for (const auto& [type, origin] : node.types_before) steps.push_back(explainer.step(origin, type));
      steps.push_back(explainer.step(node.type_origin, node.type_name));
      add(list, name, std::move(steps), false);
    } else if (key.path == std::vector<std::string>{"device"} && node.type->has_device) {
      Steps steps{{"default", kDefaultDevice, ""}};
      if (node.device) steps.push_back(explainer.step(node.device_origin, *node.device));
      for (const NodeChange& change : node.device_changes) {
        if (!change.instances.contains(i)) continue;
        steps.push_back(explainer.step(change.origin, change.value ? Json(*change.value) : Json(kDefaultDevice)));
      }
      add(list, name, std::move(steps), false);
    } else {
      const FieldInfo& info = need_info(infos, key.path, node.type->name, text);
      Steps training = explainer.steps(parameters.of(i, false), key.path, info);
      Steps evaluating = explainer.steps(parameters.of(i, true), key.path, info);
      const bool more = evaluating.size() > training.size();
      add(list, name, std::move(training), false);
      if (more && loaded.spec.has_evaluate) add(list, name, std::move(evaluating), true);
    }
  }
  std::stable_partition(list.begin(), list.end(), [](const Explained& one) { return !one.evaluating; });
  return list;
}

}  // namespace

std::vector<Explained> explain(const std::string& text, const std::string& file, const Registry& base,
                               const PlanOptions& options, const std::string& key_text) {
  const Loaded loaded = load_sound(text, file, base, options);
  const Registry& registry = *loaded.types;
  const Spec& spec = loaded.spec;
  std::string why;
  const auto key = parse_key(key_text, why);
  if (!key) refuse(key_text, why);
  if (key->act != ChangeKey::Act::kSet) refuse(key_text, "a value is named without \"+\" and \"~\"");
  const Explainer explainer(loaded);
  const auto one = [&](const Written& values, const std::vector<std::string>& path, const Infos& infos,
                       const std::string& owner) {
    const FieldInfo& info = need_info(infos, path, owner, key_text);
    return std::vector<Explained>{{{key_text}, explainer.steps(values, path, info), false}};
  };
  if (key->id == "name" && key->path.empty()) {
    Explained::Step step{"default", spec.name, "the file's name"};
    if (spec.name_origin) step = explainer.step(*spec.name_origin, spec.name);
    return {{{key_text}, {step}, false}};
  }
  if (key->path.empty()) refuse(key_text, "write it as ID.PARAMETER, run.NAME, models.NAME.PARAMETER or evaluate.NAME");
  if (key->id == "run") return one(spec.run, key->path, run_infos(), "run");
  if (key->id == "evaluate") {
    if (!spec.has_evaluate) refuse(key_text, "this pipeline has no \"evaluate\"");
    if (key->path[0] == "set")
      refuse(key_text, "name the node's value itself, as in gen.rows: evaluations are told with it");
    return one(spec.evaluate, key->path, evaluate_infos(), "evaluate");
  }
  if (key->id == "models") {
    std::vector<std::string> names;
    for (const ModelSpec& model : spec.models) {
      names.push_back(model.name);
      if (model.name != key->path[0]) continue;
      if (key->path.size() == 1) refuse(key_text, "name one of its values, as in models.NAME.type");
      return one(model.values, {key->path.begin() + 1, key->path.end()}, infos_of(model, registry),
                 "models." + model.name);
    }
    refuse(key_text, fmt::format("no model is named {}{}", in_quotes(key->path[0]), did_you_mean(key->path[0], names)));
  }
  return explain_node(loaded, *key, key_text);
}

std::vector<std::string> keys_of(const std::string& text, const std::string& file, const Registry& base,
                                 const PlanOptions& options) {
  const Loaded loaded = load_sound(text, file, base, options);
  const Registry& registry = *loaded.types;
  std::vector<std::string> keys{"name"};
  for (const ModelSpec& model : loaded.spec.models) {
    add_keys(infos_of(model, registry), "models." + model.name + ".", keys);
  }
  for (const NodeSpec& node : loaded.spec.nodes) {
    keys.push_back(node.id + ".type");
    if (node.type->has_device) keys.push_back(node.id + ".device");
    add_keys(infos_of(node), node.id + ".", keys);
  }
  add_keys(run_infos(), "run.", keys);
  if (loaded.spec.has_evaluate) add_keys(evaluate_infos(), "evaluate.", keys);
  return keys;
}

}  // namespace lanewise
