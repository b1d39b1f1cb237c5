// The keys of changes, one grammar for the command line and for "set" in files:
//
//   lane.loss           a parameter of all instances           run.steps            a setting
//   gen3.path           of one                                 models.net.hidden    a parameter of a model
//   gen[0..7].period    of some, both ends included            evaluate.set.gen.rows  what differs in evaluations
//   gen[*].path         of all                                 lane.device          where it computes
//   +gen.max_gap        adds what is not given yet             ~gen.max_gap         takes it out: its default holds
//   +tap                adds a node, +models.big a model       ~tap, ~models.big, ~evaluate
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/read.h"

namespace lanewise {

struct ChangeKey {
  enum class Act { kSet, kAdd, kRemove } act = Act::kSet;
  std::string id;                      // of a node or instance, or run, models, evaluate, name
  std::optional<Instances> instances;  // what stood in brackets behind it
  // What comes after the first dot, split at the dots, the key in evaluate.set.KEY in one; may be empty.
  std::vector<std::string> path;
  std::string rest;  // the same, whole
};

// nullopt: it cannot be read, and `why` says how to write it.
std::optional<ChangeKey> parse_key(const std::string& text, std::string& why);

// Which instances of which node a key names; without brackets, all of a node.
struct ChosenInstances {
  int node = 0;  // in Spec::nodes
  Instances instances;
};

// nullopt: there are none, and `why` says what there is. `others`: what else could stand there, for a hint.
std::optional<ChosenInstances> choose_instances(const Spec& spec, const ChangeKey& key,
                                                const std::vector<std::string>& others, std::string& why);

}  // namespace lanewise
