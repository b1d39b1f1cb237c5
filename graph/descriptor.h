// Descriptors as JSON: what `lanewise nodes --json` prints of a type, and what a plugin's NAME.json tells of its types
// where nothing of the plugin is loaded.
//
//   [ { "kind": "node type", "name": "spike", "help": "…", "role": "per-sample", "device": false, "shapes": "same",
//       "inputs": [ { "name": "sample", "carries": "sample", "many": false } ], "outputs": [ … ],
//       "parameters": [ { "name": "height", "type": "number", "help": "…", "default": 1.0, "at_least": 0.0, … } ] },
//     { "kind": "model", "name": "…", "help": "…", "parameters": [ … ] }, { "kind": "loss", … } ]
//
// "shapes" is what is known of a node's outputs before a run: "same" (what its first input carries) or "run" (nothing).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/registry.h"

namespace lanewise {

// What a plugin has.
struct Types {
  std::vector<NodeType> nodes;
  std::vector<PartType> models, losses;
};

nlohmann::ordered_json descriptor_of(const NodeType& type);
nlohmann::ordered_json descriptor_of(const PartType& type, const std::string& kind);  // "model", "loss"
// A list of all of them.
nlohmann::ordered_json descriptors_of(const Types& types);

// Reads such a list; `file` names it in messages. What is wrong is added to `problems`, and the types that are not
// sound are left out. A node type that is read has parameters, ports and shapes, but makes no nodes.
Types read_descriptors(const std::string& text, const std::string& file, std::vector<Problem>& problems);

// What two lists of descriptors say differently, one line each: `loss spike: "help": "a" -> "b"`.
std::vector<std::string> descriptor_differences(const nlohmann::json& before, const nlohmann::json& now);

// For a NodeType whose outputs carry what its first input does.
void infer_same(InferContext& context);

}  // namespace lanewise
