// Changes to a Spec, in layers: "swap" and "set" of a file (graph/load.h), those of the files that have it as their
// base, then --swap and --set of the command line. graph/key.h tells how they are written.
//
//   --set lane.loss=huber          --swap 'gen={"type":"lorenz","params":{"dt":0.01}}'
//   "set": { "lane.loss": "huber" },  "swap": { "gen": { "type": "lorenz", "params": { "dt": 0.01 } } }
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/read.h"
#include "graph/spec.h"

namespace lanewise {

// One change: a value of a file or, of the command line, a text that the field's type reads; neither: there was no "=".
struct Change {
  std::string key;
  std::optional<std::string> text;
  std::optional<nlohmann::json> value;
  Origin origin;
};

struct Layer {
  std::vector<Change> swaps, sets;  // each in the order given
};

// The command line's. Throws Error(kCommandLine) for an option that cannot be read at all.
Layer read_layer(const std::vector<Override>& overrides);
// A file's. `nodes`: it is the one that has the nodes, and no "swap".
Layer read_layer(const Document& file, bool nodes, std::vector<Problem>& problems);

// Layer by layer: swaps, then nodes and models that are added or taken out, then all other sets; then finds what
// "evaluate": {"set"} is about. What is unknown is a problem at its origin. `document` is the file that has the nodes.
// `notes`: what was dropped.
//
// A swap replaces a type, and keeps the parameters that fit the new one and are not given with it.
void apply_changes(Spec& spec, const std::vector<Layer>& layers, const Document& document, const Registry& registry,
                   std::vector<Problem>& problems, std::vector<std::string>& notes);

}  // namespace lanewise
