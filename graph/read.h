// A Spec is what the user wrote: the sections of a pipeline file, read strictly, and on top the command line's changes
// (graph/change.h). Nothing is multiplied or wired yet.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
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

// Where a value was written: at a pointer into a file, or in an option of the command line.
struct Origin {
  std::string pointer;
  std::string option;       // "--set lane.loss=huber"; "" in a file
  std::string folder = {};  // of an option: what relative paths in it are relative to; "": the current directory
  const Document* document = nullptr;  // a file with "base"; null: the one that has the nodes

  Origin below(const std::string& relative) const;
  // `nodes` is the file that has the nodes.
  Place place(const Document& nodes) const;
  // What relative paths are relative to.
  std::string folder_of(const Document& nodes) const;
};

// A path of keys as a pointer without its first slash: "checkpoint/every".
std::string relative_to(const std::vector<std::string>& path);

// An object of values whose members may come from different places. It remembers what came before.
class Written {
 public:
  Written() = default;
  Written(nlohmann::json values, Origin origin)
      : values_(std::move(values)),
        first_(std::make_shared<const nlohmann::json>(values_)),
        origin_(std::move(origin)) {}

  const nlohmann::json& values() const { return values_; }
  const Origin& origin() const { return origin_; }
  Origin origin_of(const std::string& relative) const;  // "path", "checkpoint/every"
  // The value at a path of keys; null: there is none.
  const nlohmann::json* find(const std::vector<std::string>& path) const;
  // The same before all changes.
  const nlohmann::json* first(const std::vector<std::string>& path) const;

  // Puts a value at a path of keys, in the place of what was there.
  void set(const std::vector<std::string>& path, nlohmann::json value, Origin origin);
  // Takes out what is at a path. Requires: there is something.
  void take(const std::vector<std::string>& path, Origin origin);

  // What was put at a path or, without a value, taken out.
  struct Change {
    std::string relative;
    std::optional<nlohmann::json> value;
    Origin origin;
  };
  const std::vector<Change>& changes() const { return changes_; }  // in their order, since construction

  // Remembers what this took the place of in a swap.
  void replaces(Written before) { replaced_ = std::make_shared<const Written>(std::move(before)); }
  const Written* replaced() const { return replaced_.get(); }  // null: nothing

  // For reading by Fields. This object and the document must outlive the source.
  Fields::Source source(const Document& document, const std::string& owner,
                        const std::string& noun = "parameter") const;

 private:
  nlohmann::json values_ = nlohmann::json::object();
  std::shared_ptr<const nlohmann::json> first_;  // shared by all copies; null: there was nothing
  Origin origin_;
  std::vector<Change> changes_;
  std::shared_ptr<const Written> replaced_;
};

// One entry of a node's "in".
struct InputSpec {
  std::string from;  // "gen", "gen3", "lane.prediction"
  std::optional<std::string> port;
  std::optional<std::int64_t> take;
  std::int64_t capacity = 2, initial = 0;
  Origin origin;
  bool sound = true;  // no problem was found in it

  void fields(Fields& f);
};

// Some instances of a node, neighbours of each other.
struct Instances {
  std::int64_t first = 0, last = std::numeric_limits<std::int64_t>::max();  // both included
  bool contains(std::int64_t instance) const { return first <= instance && instance <= last; }
};

// A change to a parameter or the device of a node's instances; without a value it is taken out.
struct NodeChange {
  Instances instances;
  std::vector<std::string> path;
  std::optional<nlohmann::json> value;
  Origin origin;
};

// One entry of "nodes".
struct NodeSpec {
  std::string id, type_name;
  std::optional<std::int64_t> repeat;
  std::optional<std::string> device;
  nlohmann::json in = nlohmann::json::array();
  std::vector<InputSpec> inputs;
  Written params, each;

  Origin origin, type_origin, device_origin;
  const NodeType* type = nullptr;                                     // null: unknown, which was told
  int swapped = -1;                                                   // in which layer (graph/change.h); -1: in none
  std::vector<std::pair<std::string, Origin>> types_before;           // those that swaps replaced, in their order
  std::vector<NodeChange> changes, device_changes, evaluate_changes;  // in the order given

  // "params" and "each" are read into the JSON given.
  void fields(Fields& f, nlohmann::json* all, nlohmann::json* differing);
  std::int64_t count() const { return repeat.value_or(1); }
  std::string instance_id(std::int64_t instance) const;
};

struct ModelSpec {
  std::string name;
  Written values;  // "type" and parameters
};

// One entry of "evaluate": {"set": {…}}.
struct EvaluateChange {
  std::string key;                  // "gen.rows"
  std::optional<std::string> text;  // of the command line: to be read by the field's type, instead of `value`
  nlohmann::json value;
  Origin origin;
  int layer = 0;  // that it was written in (graph/change.h)
};

struct Spec {
  std::string name;
  std::vector<NodeSpec> nodes;
  std::vector<ModelSpec> models;
  Written run, evaluate;
  std::vector<PluginFile> plugins;
  bool has_evaluate = false;
  std::vector<EvaluateChange> evaluate_set;
  std::optional<Origin> name_origin;  // absent: it is the file's
  bool named = true;                  // every node and instance has an id of its own
  bool expandable = true;             // there are not too many nodes

  // A node by its id, or an instance of it. instance is -1 for all.
  struct Ref {
    int node = 0, instance = -1;
  };
  std::optional<Ref> find(const std::string& id) const;
  // What to say when there is no such id. `others`: what else could have been meant.
  std::string unknown(const std::string& id, std::vector<std::string> others = {}) const;

  std::unordered_map<std::string, Ref> ids;
};

// The device of a node where none is given.
inline constexpr const char* kDefaultDevice = "cpu:*";
// The most nodes that a plan may have.
inline constexpr std::int64_t kMaxNodes = 100'000;

// Reads the sections of a file that has the nodes; `file_name` is the pipeline's name where it gives none.
Spec read_spec(const Document& document, const std::string& file_name, std::vector<Problem>& problems);
// Reads one entry of "nodes", at `origin`.
NodeSpec read_node(const nlohmann::json& value, const Origin& origin, const Document& document,
                   std::vector<Problem>& problems);
// Every node and instance under its id, anew; an id that is taken is told.
void fill_ids(Spec& spec, const Document& document, std::vector<Problem>& problems);
// Reads an object by its fields(). False: it is none, or something in it is wrong.
bool read_object(const nlohmann::json& value, const Origin& origin, const std::string& owner, const Document& document,
                 std::vector<Problem>& problems, const std::function<void(Fields&)>& fields);

// "" or why this is no name for a pipeline.
std::string bad_name(const std::string& name);
// "evaluate" without "set".
void evaluate_fields(Fields& f, EvaluateSettings& settings);
// What they tell, and what "run" does.
std::vector<FieldInfo> evaluate_infos();
std::vector<FieldInfo> run_infos();
// The type that a model's values name; null: they name none that there is.
const PartType* type_of_model(const Written& values, const Registry& registry);
// The value of "plugins" in a file.
void read_plugins(const std::vector<std::string>& written, const Document& document, std::vector<PluginFile>& files);
// "nodes", "run", …: the keys of a whole file, and of one with "base".
struct TopKeys {
  std::optional<std::string> schema, name;
  std::vector<std::string> plugins;
  nlohmann::json models = nlohmann::json::object(), nodes, run = nlohmann::json::object(), evaluate;
  nlohmann::json set = nlohmann::json::object();
  void fields(Fields& f);
};
struct BaseKeys {
  std::optional<std::string> schema, name;
  Path base;
  std::vector<std::string> plugins;
  nlohmann::json swap = nlohmann::json::object(), set = nlohmann::json::object();
  void fields(Fields& f);
};

}  // namespace lanewise
