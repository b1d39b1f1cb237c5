#include "graph/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxId = 100;  // bytes
constexpr const char* kPluginsHelp =
    "libraries with types of one's own; beside each libNAME.so lies NAME.json, which tells them";
const std::set<std::string> kReserved{"run", "models", "evaluate", "name"};

// "" or why it is no id.
std::string bad_id(const std::string& id) {
  if (id.empty()) return "is empty; give it a name";
  if (id.size() > kMaxId) return fmt::format("is longer than {} bytes", kMaxId);
  if (kReserved.contains(id)) return "is reserved: it is a section of the pipeline file";
  if (id.find('.') != std::string::npos) return "holds a \".\", which stands between an id and a port or parameter";
  for (std::size_t i = 0; i < id.size();) {
    if (!is_printable(decode_utf8(id, i).value_or(0))) return "holds a character that cannot be printed";
  }
  return "";
}

bool must_be(bool good, const Json& value, const Place& place, const std::string& what, const std::string& kind,
             std::vector<Problem>& problems) {
  if (!good) problems.push_back({place, fmt::format("{} must be {}, not {}", what, kind, shown(value))});
  return good;
}

// The value at a path of keys in an object; null: there is none.
const Json* find_in(const Json& values, const std::vector<std::string>& path) {
  const Json* at = &values;
  for (const std::string& key : path) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(key);
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at;
}

}  // namespace

bool read_object(const Json& value, const Origin& origin, const std::string& owner, const Document& document,
                 std::vector<Problem>& problems, const std::function<void(Fields&)>& fields) {
  if (!value.is_object()) {
    problems.push_back({origin.place(document), fmt::format("{} must be an object, not {}", owner, shown(value))});
    return false;
  }
  const std::size_t before = problems.size();
  const Written written(value, origin);
  Fields reader(written.source(document, owner, "key"), problems);
  fields(reader);
  reader.finish();
  return problems.size() == before;
}

NodeSpec read_node(const Json& value, const Origin& origin, const Document& document, std::vector<Problem>& problems) {
  NodeSpec node;
  node.origin = origin;
  node.type_origin = origin.below("type");
  node.device_origin = origin.below("device");
  Json params = Json::object(), each = Json::object();
  const bool sound =
      read_object(value, origin, "node", document, problems, [&](Fields& f) { node.fields(f, &params, &each); });
  if (!sound && !value.is_object()) return node;
  if (value.contains("id") && value["id"].is_string()) {
    if (const std::string why = bad_id(node.id); !why.empty()) {
      problems.push_back(
          {origin.below("id").place(document), fmt::format("node: the id {} {}", in_quotes(node.id), why)});
    }
  }
  for (const auto& [key, object, into] :
       {std::tuple{"params", &params, &node.params}, std::tuple{"each", &each, &node.each}}) {
    const Origin at = origin.below(key);
    if (!must_be(object->is_object(), *object, at.place(document), fmt::format("node: \"{}\"", key), "an object",
                 problems)) {
      *object = Json::object();
    }
    *into = Written(std::move(*object), at);
  }
  const Origin in = origin.below("in");
  if (must_be(node.in.is_array(), node.in, in.place(document), "node: \"in\"", "a list of inputs", problems)) {
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      InputSpec& input = node.inputs.emplace_back();
      input.origin = in.below(fmt::format("{}", i));
      input.sound =
          read_object(node.in[i], input.origin, "input", document, problems, [&](Fields& f) { input.fields(f); });
    }
  }
  node.in = nullptr;
  return node;
}

void fill_ids(Spec& spec, const Document& document, std::vector<Problem>& problems) {
  spec.ids.clear();
  std::int64_t total = 0;
  for (const NodeSpec& node : spec.nodes) {
    total += node.count();
    if (total > kMaxNodes) {
      problems.push_back({node.origin.below("repeat").place(document), fmt::format("more than {} nodes", kMaxNodes)});
      spec.expandable = false;
      return;
    }
  }
  const auto taken = [&](const NodeSpec& node, const std::string& id, const Spec::Ref& by) {
    const NodeSpec& other = spec.nodes[by.node];
    const std::string which = by.instance < 0 ? "another node" : fmt::format("an instance of {}", in_quotes(other.id));
    problems.push_back(
        {node.origin.below("id").place(document), fmt::format("node: the id {} is taken by {} ({})", in_quotes(id),
                                                              which, other.origin.below("id").place(document).at)});
    spec.named = false;
  };
  for (int i = 0; i < static_cast<int>(spec.nodes.size()); ++i) {
    const NodeSpec& node = spec.nodes[i];
    if (!bad_id(node.id).empty()) spec.named = false;
    if (node.id.empty()) continue;
    if (const auto [it, fresh] = spec.ids.emplace(node.id, Spec::Ref{i, -1}); !fresh) taken(node, node.id, it->second);
  }
  for (int i = 0; i < static_cast<int>(spec.nodes.size()); ++i) {
    const NodeSpec& node = spec.nodes[i];
    if (!node.repeat || node.id.empty()) continue;
    for (int k = 0; k < node.count(); ++k) {
      const auto [it, fresh] = spec.ids.emplace(node.instance_id(k), Spec::Ref{i, k});
      if (!fresh) {
        taken(node, node.instance_id(k), it->second);
        break;
      }
    }
  }
}

Origin Origin::below(const std::string& relative) const {
  if (relative.empty()) return *this;
  return {pointer + "/" + relative, option, folder, document};
}

Place Origin::place(const Document& nodes) const {
  if (option.empty()) return (document ? *document : nodes).place(pointer);
  return {"command line", pointer.empty() ? option : option + " " + pointer};
}

std::string Origin::folder_of(const Document& nodes) const {
  return option.empty() ? (document ? *document : nodes).folder() : folder;
}

std::string relative_to(const std::vector<std::string>& path) {
  std::string relative;
  for (const std::string& key : path) relative += pointer_to(key);
  return relative.substr(1);
}

Origin Written::origin_of(const std::string& relative) const {
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    if (!change->value) continue;
    if (change->relative == relative) return change->origin;
    if (relative.starts_with(change->relative + "/")) {
      return change->origin.below(relative.substr(change->relative.size() + 1));
    }
  }
  return origin_.below(relative);
}

const Json* Written::find(const std::vector<std::string>& path) const { return find_in(values_, path); }
const Json* Written::first(const std::vector<std::string>& path) const {
  return first_ ? find_in(*first_, path) : nullptr;
}

void Written::set(const std::vector<std::string>& path, Json value, Origin origin) {
  Json* at = &values_;
  for (const std::string& key : path) {
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[key];
  }
  *at = value;
  changes_.push_back({relative_to(path), std::move(value), std::move(origin)});
}

void Written::take(const std::vector<std::string>& path, Origin origin) {
  Json* at = &values_;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) at = &at->at(path[i]);
  at->erase(path.back());
  changes_.push_back({relative_to(path), std::nullopt, std::move(origin)});
}

Fields::Source Written::source(const Document& document, const std::string& owner, const std::string& noun) const {
  return {&values_, owner,
          [this, &document](const std::string& key) {
            return key.empty() ? origin_.place(document) : origin_of(key).place(document);
          },
          [this, &document](const std::string& key) { return origin_of(key).folder_of(document); }, noun};
}

void InputSpec::fields(Fields& f) {
  f.add("from", from, "id of the node it comes from: all its instances, or one; \"id.port\" for another output")
      .required();
  f.add("port", port, "the input it goes to; without it, inputs fill the ports in their order");
  f.add("take", take, "how many instances each instance takes: the first n, the next n, …; without it, all")
      .at_least(1);
  f.add("capacity", capacity, "packets that may wait on each edge").between(1, 65536);
  f.add("initial", initial, "packets on the edge before the first firing; closes a cycle").at_least(0);
}

void NodeSpec::fields(Fields& f, Json* all, Json* differing) {
  f.add("id", id, "name of the node; its instances are id0, id1, …").required();
  f.add("repeat", repeat, "how many instances").between(1, 65536);
  f.add("type", type_name, "what it does: lanewise nodes lists the types").required();
  f.add("in", in, "inputs, in the order of the type's ports");
  f.add("device", device, "where it computes: cpu:N, cpu:*, cuda:N, cuda:* or auto:*");
  f.add("params", all, "parameters of the type");
  f.add("each", differing, "parameters that differ: a list with one value an instance, or a number to count from");
}

std::string NodeSpec::instance_id(std::int64_t instance) const {
  return repeat ? fmt::format("{}{}", id, instance) : id;
}

std::optional<Spec::Ref> Spec::find(const std::string& id) const {
  const auto it = ids.find(id);
  return it == ids.end() ? std::nullopt : std::optional(it->second);
}

std::string Spec::unknown(const std::string& id, std::vector<std::string> others) const {
  std::string base = id;
  while (!base.empty() && base.back() >= '0' && base.back() <= '9') base.pop_back();
  if (const auto ref = find(base); ref && base != id && ref->instance < 0) {
    const NodeSpec& node = nodes[ref->node];
    if (node.repeat) {
      return fmt::format("there is no {}: {} has {}, {}", in_quotes(id), in_quotes(base),
                         counted(node.count(), "instance"), instances_text(base, 0, node.count() - 1));
    }
  }
  for (const NodeSpec& node : nodes) {
    if (!node.id.empty()) others.push_back(node.id);
  }
  return fmt::format("no node is named {}{}", in_quotes(id), did_you_mean(id, others));
}

void TopKeys::fields(Fields& f) {
  f.add("$schema", schema, "for editors: schema.json");
  f.add("name", name, "of the pipeline; without it, that of the file");
  f.add("plugins", plugins, kPluginsHelp);
  f.add("models", models, "by name: what is trained");
  f.add("nodes", nodes, "the graph").required();
  f.add("run", run, "how long and how to train");
  f.add("evaluate", evaluate, "when and on what to evaluate");
  f.add("set", set, "changes, as --set writes them: \"gen[0..7].period\": 9");
}

void read_plugins(const std::vector<std::string>& written, const Document& document, std::vector<PluginFile>& files) {
  for (std::size_t i = 0; i < written.size(); ++i) {
    files.push_back(plugin_file(written[i], document.folder(), document.place("/plugins" + pointer_to(i))));
  }
}

void BaseKeys::fields(Fields& f) {
  f.add("$schema", schema, "for editors: schema.json");
  f.add("name", name, "of the pipeline; without it, that of the file");
  f.add("base", base, "the pipeline file that this one is a change of").required();
  f.add("plugins", plugins, kPluginsHelp);
  f.add("swap", swap, "node types and their parameters to put in the place of others, by id, as --swap writes them");
  f.add("set", set, "changes, as --set writes them: \"lane.loss\": \"huber\"");
}

std::string bad_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMaxId && name.front() != '.' &&
                    name.find('/') == std::string::npos && escaped(name) == name;
  return good ? ""
              : fmt::format("the name must be fit for a folder: up to {} bytes, no \"/\", no \".\" in front, printable",
                            kMaxId);
}

void evaluate_fields(Fields& f, EvaluateSettings& settings) {
  f.add("every", settings.every, "evaluate each time after so many; without it, only after the last")
      .unit("steps")
      .at_least(1);
  f.add("steps", settings.steps, "rounds of one evaluation; needed where a source is endless")
      .unit("rounds")
      .at_least(1);
}

std::vector<FieldInfo> evaluate_infos() {
  return describe([](Fields& f) {
    EvaluateSettings settings;
    evaluate_fields(f, settings);
  });
}

std::vector<FieldInfo> run_infos() {
  return describe([](Fields& f) { RunSettings().fields(f); });
}

const PartType* type_of_model(const Written& values, const Registry& registry) {
  const Json* const type = values.find({"type"});
  return type && type->is_string() ? registry.find_model(type->get<std::string>()) : nullptr;
}

Spec read_spec(const Document& document, const std::string& file_name, std::vector<Problem>& problems) {
  Spec spec;
  TopKeys top;
  read_object(document.root(), {}, "the pipeline", document, problems, [&](Fields& f) { top.fields(f); });
  spec.name = top.name.value_or(file_name);
  if (top.name) spec.name_origin = Origin{"/name"};
  if (const std::string why = bad_name(spec.name); top.name && !why.empty()) {
    problems.push_back({document.place("/name"), why});
  }
  read_plugins(top.plugins, document, spec.plugins);
  const auto object = [&](Json& value, const std::string& key) {
    return must_be(value.is_object(), value, document.place(pointer_to(key)), fmt::format("\"{}\"", key), "an object",
                   problems);
  };
  if (object(top.models, "models")) {
    for (const auto& [name, model] : top.models.items()) {
      const std::string pointer = "/models" + pointer_to(name);
      if (const std::string why = bad_id(name); !why.empty()) {
        problems.push_back({document.place(pointer), fmt::format("the model name {} {}", in_quotes(name), why)});
      }
      if (must_be(model.is_object(), model, document.place(pointer), "a model", "an object", problems)) {
        spec.models.push_back({name, Written(model, {pointer, ""})});
      }
    }
  }
  if (!object(top.run, "run")) top.run = Json::object();
  spec.run = Written(top.run, {"/run", ""});
  spec.evaluate = Written(Json::object(), {"/evaluate", ""});
  if (!top.evaluate.is_null() && object(top.evaluate, "evaluate")) {
    spec.has_evaluate = true;
    const Json set = top.evaluate.value("set", Json::object());
    top.evaluate.erase("set");
    spec.evaluate = Written(top.evaluate, {"/evaluate", ""});
    if (must_be(set.is_object(), set, document.place("/evaluate/set"), "evaluate: \"set\"", "an object", problems)) {
      for (const std::string& key : document.keys("/evaluate/set")) {
        spec.evaluate_set.push_back({key, std::nullopt, set.at(key), {"/evaluate/set" + pointer_to(key), ""}});
      }
    }
  }
  if (top.nodes.is_array()) {
    if (top.nodes.empty())
      problems.push_back({document.place("/nodes"), "\"nodes\" is empty; a pipeline needs a source at least"});
    for (std::size_t i = 0; i < top.nodes.size(); ++i) {
      spec.nodes.push_back(read_node(top.nodes[i], {"/nodes" + pointer_to(i), ""}, document, problems));
    }
  } else if (document.root().is_object() && document.root().contains("nodes")) {
    must_be(false, top.nodes, document.place("/nodes"), "\"nodes\"", "a list of nodes", problems);
  }
  fill_ids(spec, document, problems);
  return spec;
}

}  // namespace lanewise
