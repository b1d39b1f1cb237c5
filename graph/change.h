// Changes to a Spec, in layers: "swap" and "set" of a file (graph/load.h), those of the files that have it as their
// base, then --swap and --set of the command line. graph/key.h tells how they are written.
//
//   --set lane.loss=huber          --swap 'gen={"type":"lorenz","params":{"dt":0.01}}'
//   "set": { "lane.loss": "huber" },  "swap": { "gen": { "type": "lorenz", "params": { "dt": 0.01 } } }
#pragma once

#include <string>
#include <vector>

#include "graph/layer.h"
#include "graph/spec.h"

namespace lanewise {

// Layer by layer: swaps, then nodes and models that are added or taken out, then all other sets; then finds what
// "evaluate": {"set"} is about. What is unknown is a problem at its origin. `document` is the file that has the nodes.
// `notes`: what was dropped.
//
// A swap replaces a type, and keeps the parameters that fit the new one and are not given with it.
void apply_changes(Spec& spec, const std::vector<Layer>& layers, const Document& document, const Registry& registry,
                   std::vector<Problem>& problems, std::vector<std::string>& notes);

}  // namespace lanewise
