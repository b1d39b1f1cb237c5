// A Spec is what the user wrote: the sections of a pipeline file, read strictly, and on top the command line's changes
// (graph/change.h). Nothing is multiplied or wired yet.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/document.h"
#include "graph/fields.h"
#include "graph/plan.h"
#include "graph/plugins.h"
#include "graph/registry.h"

namespace lanewise {

// Where a value was written: at a pointer into the file, or in an option of the command line.
struct Origin {
  std::string pointer;
  std::string option;       // "--set lane.loss=huber"; "" in the file
  std::string folder = {};  // of an option: what relative paths in it are relative to; "": the current directory

  Origin below(const std::string& relative) const;
  Place place(const Document& document) const;
};

// An object of values whose members may come from different places.
class Written {
 public:
  Written() = default;
  Written(nlohmann::json values, Origin origin) : values_(std::move(values)), origin_(std::move(origin)) {}

  const nlohmann::json& values() const { return values_; }
  const Origin& origin() const { return origin_; }
  Origin origin_of(const std::string& relative) const;  // "path", "checkpoint/every"

  // Puts a value at a path of keys, in the place of what was there.
  void set(const std::vector<std::string>& path, nlohmann::json value, Origin origin);
  // Takes a member out; nullopt when there is none.
  std::optional<nlohmann::json> take(const std::string& key);

  // For reading by Fields. This object and the document must outlive the source.
  Fields::Source source(const Document& document, const std::string& owner,
                        const std::string& noun = "parameter") const;

 private:
  nlohmann::json values_ = nlohmann::json::object();
  Origin origin_;
  std::map<std::string, Origin> origins_;  // by relative pointer; of what was set()
};

// One entry of a node's "in".
struct InputSpec {
  std::string from;  // "gen", "gen3", "lane.prediction"
  std::optional<std::string> port;
  std::optional<std::int64_t> take;
  std::int64_t capacity = 2, initial = 0;
  std::string pointer;
  bool sound = true;  // no problem was found in it

  void fields(Fields& f);
};

// A change to a parameter or the device of a node's instances.
struct NodeChange {
  int instance = -1;  // -1: all
  std::vector<std::string> path;
  nlohmann::json value;
  Origin origin;
};

// One entry of "nodes".
struct NodeSpec {
  std::string id, type_name;
  std::optional<std::int64_t> repeat;
  std::optional<std::string> device;
  nlohmann::json params = nlohmann::json::object(), each = nlohmann::json::object(), in = nlohmann::json::array();
  std::vector<InputSpec> inputs;

  std::string pointer;
  Origin type_origin, params_origin, each_origin, device_origin;
  const NodeType* type = nullptr;                                     // null: unknown, which was told
  bool swapped = false;                                               // by --swap
  std::vector<NodeChange> changes, device_changes, evaluate_changes;  // in the order given

  void fields(Fields& f);
  std::int64_t count() const { return repeat.value_or(1); }
  std::string instance_id(std::int64_t instance) const;
};

struct ModelSpec {
  std::string name;
  Written values;  // "type" and parameters
};

struct Spec {
  std::string name;
  std::vector<NodeSpec> nodes;
  std::vector<ModelSpec> models;
  Written run, evaluate;
  std::vector<PluginFile> plugins;
  bool has_evaluate = false;
  nlohmann::json evaluate_set = nlohmann::json::object();
  bool named = true;       // every node and instance has an id of its own
  bool expandable = true;  // there are not too many nodes

  // A node by its id, or an instance of it. instance is -1 for all.
  struct Ref {
    int node = 0, instance = -1;
  };
  std::optional<Ref> find(const std::string& id) const;
  // What to say when there is no such id. `others`: what else could have been meant.
  std::string unknown(const std::string& id, std::vector<std::string> others = {}) const;

  std::unordered_map<std::string, Ref> ids;
};

// The most nodes that a plan may have.
inline constexpr std::int64_t kMaxNodes = 100'000;

// Reads the sections; `file_name` is the pipeline's name where it gives none.
Spec read_spec(const Document& document, const std::string& file_name, std::vector<Problem>& problems);

// "" or why this is no name for a pipeline.
std::string bad_name(const std::string& name);
// "evaluate" without "set".
void evaluate_fields(Fields& f, EvaluateSettings& settings);
// "nodes", "run", …: the keys of the whole file.
struct TopKeys {
  std::optional<std::string> schema, name;
  std::vector<std::string> plugins;
  nlohmann::json models = nlohmann::json::object(), nodes, run = nlohmann::json::object(), evaluate;
  void fields(Fields& f);
};

}  // namespace lanewise
