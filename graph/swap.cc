#include "graph/swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

// "" or why a type told by `fields` does not take a value at a path.
std::string misfit(const std::string& owner, const std::function<void(Fields&)>& told,
                   const std::vector<std::string>& path, const Json& value) {
  Json object = value;
  for (auto key = path.rbegin(); key != path.rend(); ++key) object = Json{{*key, object}};
  std::vector<Problem> problems;
  Fields fields({&object, owner,
                 [](const std::string& key) {
                   return Place{key, ""};
                 },
                 [](const std::string&) { return ""; }},
                problems);
  if (told) told(fields);
  fields.finish();
  const std::string at = relative_to(path);
  for (const Problem& problem : problems) {
    const std::string& where = problem.place.at;
    const bool here = where == at || where.starts_with(at + "/") || (!where.empty() && at.starts_with(where + "/"));
    if (here) return problem.rule;
  }
  return "";
}

// What a swap does with the parameters that there were.
class Keeping {
 public:
  Keeping(std::string owner, std::function<void(Fields&)> told) : owner_(std::move(owner)), told_(std::move(told)) {}

  // True: a value fits at a path.
  bool fits(const std::vector<std::string>& path, const Json& value) {
    return note(path, misfit(owner_, told_, path, value));
  }
  // The same for a key of "each".
  bool fits_each(const std::string& key, const Json& value) {
    std::string why;
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
      if (why.empty()) why = misfit(owner_, told_, {key}, one);
    }
    return note({key}, why);
  }

  // "keeps features; drops path: lorenz has no parameter \"path\"", or "" when there was nothing.
  std::string text() const {
    std::string text = kept_.empty() ? "" : "keeps " + listed(kept_);
    if (!dropped_.empty()) text += (text.empty() ? "drops " : "; drops ") + listed(dropped_);
    for (const std::string& why : reasons_) text += ": " + why;
    return text;
  }

 private:
  bool note(const std::vector<std::string>& path, const std::string& why) {
    const std::string name = fmt::format("{}", fmt::join(path, "."));
    std::vector<std::string>& list = why.empty() ? kept_ : dropped_;
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
    if (!why.empty() && find_field(infos_, path) != nullptr) reasons_.push_back(why);
    return why.empty();
  }

  const std::string owner_;
  const std::function<void(Fields&)> told_;
  const std::vector<FieldInfo> infos_ = describe(told_);
  std::vector<std::string> kept_, dropped_, reasons_;
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

}  // namespace

void swap_node(NodeSpec& node, const Change& change, const Json& value, Changing& changing) {
  SwapKeys keys;
  if (!read_object(value, change.origin, "swap", changing.document, changing.problems,
                   [&](Fields& f) { keys.fields(f); }) &&
      !value.is_object()) {
    return;
  }
  for (auto [key, object] : {std::pair{"params", &keys.params}, std::pair{"each", &keys.each}}) {
    if (object->is_object()) continue;
    changing.problem(change.origin, fmt::format("swap: \"{}\" must be an object, not {}", key, shown(*object)));
    *object = Json::object();
  }
  Written params(keys.params, change.origin.below("params")), each(keys.each, change.origin.below("each"));
  const std::string before = std::exchange(node.type_name, keys.type);
  node.types_before.emplace_back(before, std::exchange(node.type_origin, change.origin.below("type")));
  node.swapped = changing.layer;
  const auto given = [&](const std::string& name) { return keys.params.contains(name) || keys.each.contains(name); };
  if (const NodeType* type = changing.registry.find_node(keys.type)) {
    Keeping keeping(type->name, type->fields);
    for (const auto& [key, old] : node.params.values().items()) {
      if (!given(key) && keeping.fits({key}, old)) params.set({key}, old, node.params.origin_of(relative_to({key})));
    }
    for (const auto& [key, old] : node.each.values().items()) {
      if (!given(key) && keeping.fits_each(key, old)) each.set({key}, old, node.each.origin_of(relative_to({key})));
    }
    std::erase_if(node.changes, [&](const NodeChange& one) {
      return given(one.path[0]) || (one.value && !keeping.fits(one.path, *one.value));
    });
    if (const std::string text = keeping.text(); !text.empty()) {
      changing.notes.push_back(fmt::format("{}: {} in the place of {} {}", node.id, type->name, before, text));
    }
  }
  params.replaces(std::move(node.params));
  node.params = std::move(params);
  node.each = std::move(each);
}

void swap_model(ModelSpec& model, const Change& change, const Json& value, Changing& changing) {
  if (!value.is_object()) {
    return changing.problem(change.origin, fmt::format("a swap must be an object, not {}", shown(value)));
  }
  Written now(value, change.origin);
  const PartType* const type = type_of_model(now, changing.registry);
  if (type) {
    Keeping keeping(type->name, type->fields);
    for (const auto& [key, old] : model.values.values().items()) {
      if (value.contains(key) || !keeping.fits({key}, old)) continue;
      now.set({key}, old, model.values.origin_of(relative_to({key})));
    }
    if (const std::string text = keeping.text(); !text.empty()) {
      changing.notes.push_back(fmt::format("models.{}: {} {}", model.name, type->name, text));
    }
  }
  now.replaces(std::move(model.values));
  model.values = std::move(now);
}

}  // namespace lanewise
