// Opens plugins (nodes/plugin.h).
#pragma once

#include "graph/plugins.h"

namespace lanewise {

// Opens a plugin that was examined and gives its types; its models and losses are in the runtime's tables from then on.
// A file that was opened before is not opened again. Throws Error(kPipeline). By one thread, before any node is made.
Types load_plugin(const PluginFile& file);

// builtin_registry(), which loads the plugins that a pipeline names: for commands that run one.
Registry loading_registry();

}  // namespace lanewise
