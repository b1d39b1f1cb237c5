#include "graph/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxId = 100;  // bytes
const std::set<std::string> kReserved{"run", "models", "evaluate", "name"};

// Reads an object by its fields(). False: it is none, or something in it is wrong.
template <class T>
bool read_object(T& into, const Json& value, const std::string& pointer, const std::string& owner,
                 const Document& document, std::vector<Problem>& problems) {
  if (!value.is_object()) {
    problems.push_back({document.place(pointer), fmt::format("{} must be an object, not {}", owner, shown(value))});
    return false;
  }
  const std::size_t before = problems.size();
  const Written written(value, {pointer, ""});
  Fields fields(written.source(document, owner, "key"), problems);
  into.fields(fields);
  fields.finish();
  return problems.size() == before;
}

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

bool must_be(bool good, const Json& value, const std::string& pointer, const std::string& what, const std::string& kind,
             const Document& document, std::vector<Problem>& problems) {
  if (!good)
    problems.push_back({document.place(pointer), fmt::format("{} must be {}, not {}", what, kind, shown(value))});
  return good;
}

NodeSpec read_node(const Json& value, const std::string& pointer, const Document& document,
                   std::vector<Problem>& problems) {
  NodeSpec node;
  node.pointer = pointer;
  node.type_origin = {pointer + "/type", ""};
  node.params_origin = {pointer + "/params", ""};
  node.each_origin = {pointer + "/each", ""};
  node.device_origin = {pointer + "/device", ""};
  if (!read_object(node, value, pointer, "node", document, problems) && !value.is_object()) return node;
  if (value.contains("id") && value["id"].is_string()) {
    if (const std::string why = bad_id(node.id); !why.empty()) {
      problems.push_back({document.place(pointer + "/id"), fmt::format("node: the id {} {}", in_quotes(node.id), why)});
    }
  }
  for (auto [key, object] : {std::pair{"params", &node.params}, std::pair{"each", &node.each}}) {
    const std::string what = fmt::format("node: \"{}\"", key);
    if (!must_be(object->is_object(), *object, pointer + "/" + key, what, "an object", document, problems)) {
      *object = Json::object();
    }
  }
  if (must_be(node.in.is_array(), node.in, pointer + "/in", "node: \"in\"", "a list of inputs", document, problems)) {
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      InputSpec& input = node.inputs.emplace_back();
      input.pointer = pointer + "/in" + pointer_to(i);
      input.sound = read_object(input, node.in[i], input.pointer, "input", document, problems);
    }
  }
  node.in = nullptr;
  return node;
}

// Every node and instance under its id; an id that is taken is told.
void fill_ids(Spec& spec, const Document& document, std::vector<Problem>& problems) {
  std::int64_t total = 0;
  for (const NodeSpec& node : spec.nodes) {
    total += node.count();
    if (total > kMaxNodes) {
      problems.push_back({document.place(node.pointer + "/repeat"), fmt::format("more than {} nodes", kMaxNodes)});
      spec.expandable = false;
      return;
    }
  }
  const auto taken = [&](const NodeSpec& node, const std::string& id, const Spec::Ref& by) {
    const NodeSpec& other = spec.nodes[by.node];
    const std::string which = by.instance < 0 ? "another node" : fmt::format("an instance of {}", in_quotes(other.id));
    problems.push_back(
        {document.place(node.pointer + "/id"), fmt::format("node: the id {} is taken by {} ({})", in_quotes(id), which,
                                                           document.place(other.pointer + "/id").at)});
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

}  // namespace

Origin Origin::below(const std::string& relative) const {
  if (relative.empty()) return *this;
  return {pointer + "/" + relative, option, folder};
}

Place Origin::place(const Document& document) const {
  if (option.empty()) return document.place(pointer);
  return {"command line", pointer.empty() ? option : option + " " + pointer};
}

Origin Written::origin_of(const std::string& relative) const {
  for (std::size_t end = relative.size(); end != std::string::npos && end > 0; end = relative.rfind('/', end - 1)) {
    const auto it = origins_.find(relative.substr(0, end));
    if (it != origins_.end()) return end == relative.size() ? it->second : it->second.below(relative.substr(end + 1));
  }
  return origin_.below(relative);
}

void Written::set(const std::vector<std::string>& path, Json value, Origin origin) {
  Json* at = &values_;
  std::string relative;
  for (const std::string& key : path) {
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[key];
    relative += pointer_to(key);
  }
  *at = std::move(value);
  relative.erase(0, 1);
  std::erase_if(origins_, [&](const auto& entry) { return entry.first.starts_with(relative + "/"); });
  origins_[relative] = std::move(origin);
}

std::optional<Json> Written::take(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return std::nullopt;
  Json value = std::move(*it);
  values_.erase(it);
  return value;
}

Fields::Source Written::source(const Document& document, const std::string& owner, const std::string& noun) const {
  return {&values_, owner,
          [this, &document](const std::string& key) {
            return key.empty() ? origin_.place(document) : origin_of(key).place(document);
          },
          [this, &document](const std::string& key) {
            const Origin origin = origin_of(key);
            return origin.option.empty() ? document.folder() : origin.folder;
          },
          noun};
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

void NodeSpec::fields(Fields& f) {
  f.add("id", id, "name of the node; its instances are id0, id1, …").required();
  f.add("repeat", repeat, "how many instances").between(1, 65536);
  f.add("type", type_name, "what it does: lanewise nodes lists the types").required();
  f.add("in", in, "inputs, in the order of the type's ports");
  f.add("device", device, "where it computes: cpu:N, cpu:*, cuda:N, cuda:* or auto:*");
  f.add("params", params, "parameters of the type");
  f.add("each", each, "parameters that differ: a list with one value an instance, or a number to count from");
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
  f.add("plugins", plugins,
        "libraries with types of one's own; beside each libNAME.so lies NAME.json, which tells them");
  f.add("models", models, "by name: what is trained");
  f.add("nodes", nodes, "the graph").required();
  f.add("run", run, "how long and how to train");
  f.add("evaluate", evaluate, "when and on what to evaluate");
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

Spec read_spec(const Document& document, const std::string& file_name, std::vector<Problem>& problems) {
  Spec spec;
  TopKeys top;
  read_object(top, document.root(), "", "the pipeline", document, problems);
  spec.name = top.name.value_or(file_name);
  if (const std::string why = bad_name(spec.name); top.name && !why.empty()) {
    problems.push_back({document.place("/name"), why});
  }
  for (std::size_t i = 0; i < top.plugins.size(); ++i) {
    spec.plugins.push_back(plugin_file(top.plugins[i], document.folder(), document.place("/plugins" + pointer_to(i))));
  }
  const auto object = [&](Json& value, const std::string& key) {
    return must_be(value.is_object(), value, pointer_to(key), fmt::format("\"{}\"", key), "an object", document,
                   problems);
  };
  if (object(top.models, "models")) {
    for (const auto& [name, model] : top.models.items()) {
      const std::string pointer = "/models" + pointer_to(name);
      if (const std::string why = bad_id(name); !why.empty()) {
        problems.push_back({document.place(pointer), fmt::format("the model name {} {}", in_quotes(name), why)});
      }
      if (must_be(model.is_object(), model, pointer, "a model", "an object", document, problems)) {
        spec.models.push_back({name, Written(model, {pointer, ""})});
      }
    }
  }
  if (!object(top.run, "run")) top.run = Json::object();
  spec.run = Written(top.run, {"/run", ""});
  spec.evaluate = Written(Json::object(), {"/evaluate", ""});
  if (!top.evaluate.is_null() && object(top.evaluate, "evaluate")) {
    spec.has_evaluate = true;
    spec.evaluate = Written(top.evaluate, {"/evaluate", ""});
    spec.evaluate_set = spec.evaluate.take("set").value_or(Json::object());
    if (!must_be(spec.evaluate_set.is_object(), spec.evaluate_set, "/evaluate/set", "evaluate: \"set\"", "an object",
                 document, problems)) {
      spec.evaluate_set = Json::object();
    }
  }
  if (top.nodes.is_array()) {
    if (top.nodes.empty())
      problems.push_back({document.place("/nodes"), "\"nodes\" is empty; a pipeline needs a source at least"});
    for (std::size_t i = 0; i < top.nodes.size(); ++i) {
      spec.nodes.push_back(read_node(top.nodes[i], "/nodes" + pointer_to(i), document, problems));
    }
  } else if (document.root().is_object() && document.root().contains("nodes")) {
    must_be(false, top.nodes, "/nodes", "\"nodes\"", "a list of nodes", document, problems);
  }
  fill_ids(spec, document, problems);
  return spec;
}

}  // namespace lanewise
