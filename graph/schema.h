// The JSON Schema (draft 2020-12) of pipeline files, from the same descriptors that read them: one definition a node
// type and a model type, so that an editor completes names and marks mistakes.
#pragma once

#include <nlohmann/json.hpp>

#include "graph/registry.h"

namespace lanewise {

nlohmann::ordered_json schema(const Registry& registry);

}  // namespace lanewise
