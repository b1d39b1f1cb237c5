// A plugin is a library of node types, models and losses that was built outside of lanewise (nodes/plugin.h). A
// pipeline names it: "plugins": ["libspike.so"]. Beside libspike.so lies spike.json, its types' descriptors, so that a
// pipeline is checked, drawn and compared without anything of the library being loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/descriptor.h"
#include "graph/error.h"
#include "graph/registry.h"

namespace lanewise {

struct PluginFile {
  std::string written;      // as the pipeline or the command line names it
  std::string path;         // where it is
  Place place;              // of its name
  std::string sha256 = {};  // of the file, once it was read
};

// `folder`: what a relative name is relative to; "": the current directory.
PluginFile plugin_file(const std::string& written, const std::string& folder, const Place& place);

// "build/spike.json" for "build/libspike.so".
std::string descriptor_path(const std::string& library);

// Begins what a plugin says of itself: a text within the file, a line "key: value" each for what it was built for and
// with, up to a NUL character.
#define LANEWISE_PLUGIN_MARK "\nThis is a plugin of lanewise.\n"

// Reads the file as data, and fills in its digest. Throws Error(kPipeline), saying what to do, when it is not there, is
// no library or no plugin, or was not built for what `stamp` says. Nothing of it is run.
void examine_plugin(PluginFile& file, const std::string& stamp);

// Adds the types of a plugin. Throws Error(kPipeline) when one has no fit name, or a name that is taken.
void add_types(Registry& registry, Types types, const PluginFile& file);

// The registry with the types of plugins besides, told by their descriptors or, with `load` and where base.load_plugin
// says so, loaded. Without plugins it points to `base`, which then outlives it. A plugin that was named before is left
// out of `plugins`.
std::shared_ptr<const Registry> with_plugins(const Registry& base, std::vector<PluginFile>& plugins, bool load,
                                             std::vector<Problem>& problems);

}  // namespace lanewise
