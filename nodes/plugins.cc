#include "nodes/plugins.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>

#include "graph/text.h"
#include "nodes/builtin.h"
#include "nodes/plugin.h"
#include "runtime/loss.h"
#include "runtime/model.h"

namespace lanewise {
namespace {

constexpr const char* kEntry = "lanewise_plugin";

class Told final : public PluginTable {
 public:
  void add(NodeType type) override { nodes.push_back(std::move(type)); }
  void add(ModelType type) override { models.push_back(std::move(type)); }
  void add(LossType type) override { losses.push_back(std::move(type)); }

  std::vector<NodeType> nodes;
  std::vector<ModelType> models;
  std::vector<LossType> losses;
};

Told ask(const PluginFile& file) {
  // Not by the loader's search path, but this file; a path with a slash is taken as it is.
  const std::string path = file.path.find('/') == std::string::npos ? "./" + file.path : file.path;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    refuse_plugin(file, fmt::format("does not load ({}); build it again against this lanewise", escaped(dlerror())));
  auto* const entry = reinterpret_cast<void (*)(PluginTable&)>(dlsym(library, kEntry));
  if (entry == nullptr)
    refuse_plugin(file,
                  fmt::format("has no function {}; it needs a LANEWISE_PLUGIN (lanewise/nodes/plugin.h)", kEntry));
  Told told;
  try {
    entry(told);
  } catch (const std::exception& error) {
    refuse_plugin(file, fmt::format("failed while it told its types: {}", error.what()));
  } catch (...) {
    refuse_plugin(file, "failed while it told its types, by an exception that is no std::exception");
  }
  return told;
}

}  // namespace

Types load_plugin(const PluginFile& file) {
  static std::map<std::string, Types> opened;  // by digest
  if (const auto it = opened.find(file.sha256); it != opened.end()) return it->second;
  Told told = ask(file);
  Types types{
      std::move(told.nodes), {told.models.begin(), told.models.end()}, {told.losses.begin(), told.losses.end()}};
  Registry trial = builtin_registry();
  add_types(trial, types, file);  // before the tables are changed
  for (ModelType& type : told.models) {
    type.plugin = file.written;
    add_model_type(std::move(type));
  }
  for (LossType& type : told.losses) {
    type.plugin = file.written;
    add_loss_type(std::move(type));
  }
  return opened[file.sha256] = std::move(types);
}

Registry loading_registry() {
  Registry registry = builtin_registry();
  registry.load_plugin = load_plugin;
  return registry;
}

}  // namespace lanewise
