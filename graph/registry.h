// The Registry is the table of everything a pipeline can name: node types, model types, losses. A type is one
// descriptor, from which follow wiring, parameters, messages, help and the schema. Filled by one explicit function
// (nodes/builtin.cc).
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "graph/fields.h"
#include "graph/node.h"
#include "graph/signature.h"

namespace lanewise {

struct Plan;
struct PlanNode;
struct PluginFile;
struct Types;

// What a node type does in a pipeline; the evaluation plan and the accounting go by it.
enum class Role { kSource, kPerSample, kJoin, kCompute, kReduce, kOptimizer, kSink };
std::string to_string(Role role);  // "source", "per-sample", "join", …

// `carries` names what travels through: "sample", "batch", "prediction", "gradient", "reduced", "weights".
// An output fits an input that carries the same. A `many` input takes any number of edges, at least one.
struct Port {
  std::string name, carries;
  bool many = false;
};

// What a type is told when the plan is made, to work out the shapes on its outputs. It opens no device and starts
// nothing; a source of regular data files may read their headers.
class InferContext {
 public:
  InferContext(const Plan& whole, PlanNode& self, std::vector<Signature> incoming, std::vector<Problem>& problems)
      : plan(whole), node(self), inputs(std::move(incoming)), problems_(&problems) {}

  const Plan& plan;                     // nodes before this one are complete
  PlanNode& node;                       // signatures (one an output port), facts: to be filled
  const std::vector<Signature> inputs;  // one an input edge, in port order; feedback edges have an empty one

  template <class P>
  P params() const;
  // A problem of the pipeline, at parameter `param` of this node (or at the node, when empty).
  void problem(const std::string& rule, const std::string& param = "");
  // A problem of a data file (exit 4).
  void data_problem(const std::string& rule, const std::string& param = "");

 private:
  void add(Exit exit, const std::string& rule, const std::string& param);
  std::vector<Problem>* problems_;
};

// Typed services that a node reaches the runtime through, handed to it at construction. Holds references only.
class Services {
 public:
  template <class T>
  void add(T& service) {
    table_[std::type_index(typeid(T))] = &service;
  }
  template <class T>
  T* find() const {
    const auto it = table_.find(std::type_index(typeid(T)));
    return it == table_.end() ? nullptr : static_cast<T*>(it->second);
  }
  template <class T>
  T& get() const {
    if (T* service = find<T>()) return *service;
    throw Error(Exit::kInternal, std::string("no service ") + typeid(T).name());
  }

 private:
  std::unordered_map<std::type_index, void*> table_;
};

// What a node is made from.
struct NodeContext {
  const Plan& plan;
  const PlanNode& node;
  const Services& services;

  template <class P>
  P params() const;
};

struct NodeType {
  std::string name, help;
  Role role = Role::kPerSample;
  std::vector<Port> inputs, outputs;  // outputs[0] is the one meant by "from": "id"
  std::function<void(Fields&)> fields;
  std::function<void(InferContext&)> infer;  // fills node.signatures (one an output port), node.facts
  std::function<std::unique_ptr<Node>(const NodeContext&)> make;
  bool may_wait = false;       // fire() may wait: it runs as a task of its own
  bool fed = false;            // it has no inputs, and is fired when something has come from outside (Node::connect)
  bool has_device = false;     // the node takes "device"
  bool fills_missing = false;  // turns missing features (NaN) into numbers
  bool closes_cycles = false;  // its outputs have an initial packet
  bool internal = false;       // lanewise puts it into plans (score); a user cannot name it
  bool same_shapes = false;    // its outputs carry what its first input does; a plugin's descriptor can tell this much
  std::string plugin = {};     // the file it comes from; "": it is built in
};

// A type without ports: a model or a loss. The runtime keeps what it does; the graph checks what the user wrote.
struct PartType {
  std::string name, help;
  std::function<void(Fields&)> fields;
  std::string plugin = {};  // the file it comes from; "": it is built in
};

// A table of types; a copy of it is extended by the plugins that a pipeline names (graph/plugins.h).
struct Registry {
  std::vector<NodeType> nodes;
  std::vector<PartType> models, losses;
  // Rules for the whole of a training plan, whose nodes are all in order by themselves. Adds what is wrong.
  std::function<void(const Plan& plan, std::vector<Problem>& problems)> rules;

  // What a plugin must have been built for and with, as it says of itself.
  std::string plugin_stamp = {};
  // Loads a plugin and gives its types. Null: those that its descriptors tell, and nothing of it is loaded.
  std::function<Types(const PluginFile& file)> load_plugin = {};
  // After types were added: brings up to date what depends on all of them.
  std::function<void(Registry& extended)> complete = {};

  const NodeType* find_node(const std::string& name) const;
  const PartType* find_model(const std::string& name) const;
};

// The candidate nearest to `name` by edit distance, or "" when none is near enough to be meant.
std::string nearest(const std::string& name, const std::vector<std::string>& candidates);
// `; did you mean "pair"?`, or "" when nothing is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace lanewise
