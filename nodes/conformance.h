// The rules that every type keeps to, whoever wrote it, and whether one does: `lanewise check-node` and the tests of
// all built-in types. A type is tried by itself, without a graph.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/registry.h"

namespace lanewise {

struct ModelType;
struct LossType;

struct Finding {
  std::string rule;     // a sentence that goes on from the type's name: "gives the same for the same seed"
  std::string why_not;  // what was seen instead; "": the rule holds
};

struct Conformance {
  std::vector<Finding> findings;
  std::string cost;     // "1.2 µs a firing"; "": nothing was timed
  std::string untried;  // what was left out, and why; "": nothing

  bool holds() const;
};

// `params`: what has no default, and what else is to differ. Nodes that cannot be run by hand (lanes, the reduction,
// the optimizer, sinks), and models and losses whose code is in a file, are held to what they tell of themselves alone.
// `begins` is called with each rule before it is tried.
using RuleBegins = std::function<void(const std::string& rule)>;
Conformance check_node(const NodeType& type, const nlohmann::json& params, const RuleBegins& begins = {});
Conformance check_model(const ModelType& type, const nlohmann::json& params, const RuleBegins& begins = {});
Conformance check_loss(const LossType& type, const RuleBegins& begins = {});

}  // namespace lanewise
