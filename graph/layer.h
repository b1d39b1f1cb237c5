// Changes as they are written: in "swap" and "set" of a file, or as --swap and --set. graph/change.h applies them.
#pragma once

#include <nlohmann/json.hpp>
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

}  // namespace lanewise
