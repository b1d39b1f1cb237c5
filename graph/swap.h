// A swap replaces the type of a node or a model, and keeps the parameters that fit the new one and are not given with
// it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/layer.h"
#include "graph/registry.h"
#include "graph/spec.h"

namespace lanewise {

// A Spec that is being changed, and what there is to tell of it.
struct Changing {
  Spec& spec;
  const Document& document;  // that has the nodes
  const Registry& registry;
  std::vector<Problem>& problems;
  std::vector<std::string>& notes;  // what was kept or dropped
  int layer = 0;                    // in which a change stands

  void problem(const Origin& origin, const std::string& rule) { problems.push_back({origin.place(document), rule}); }
};

// `value`: {"type", "params", "each"} of a node, or all that a model is.
void swap_node(NodeSpec& node, const Change& change, const nlohmann::json& value, Changing& changing);
void swap_model(ModelSpec& model, const Change& change, const nlohmann::json& value, Changing& changing);

}  // namespace lanewise
