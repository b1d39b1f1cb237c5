// Changes to a Spec: --swap and --set of the command line, and "evaluate": {"set": {…}} for the evaluation's plan.
//
//   --set lane.loss=huber      a parameter of all instances      --set run.steps=50        a setting
//   --set gen3.path=x          of one                            --set models.net.hidden=8  a parameter of a model
//   --set lane.device=cpu:0    where it computes                 --swap 'gen={"type":"lorenz","params":{"dt":0.01}}'
#pragma once

#include <string>
#include <vector>

#include "graph/read.h"
#include "graph/spec.h"

namespace lanewise {

// Swaps first, then finds the type of every node, then sets, each kind in the order given. What is unknown is a problem
// at "command line"; an option that cannot be read at all is an Error(kCommandLine). `notes`: what was dropped.
void apply_changes(Spec& spec, const std::vector<Override>& overrides, const Document& document,
                   const Registry& registry, std::vector<Problem>& problems, std::vector<std::string>& notes);

}  // namespace lanewise
