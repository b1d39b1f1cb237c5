// Expands a Spec: `repeat` into instances, `in` with `take` into edges, `device` into one device an instance; and
// orders the nodes so that inputs come first. Knows nothing of parameters and shapes.
#pragma once

#include <string>
#include <vector>

#include "graph/document.h"
#include "graph/plan.h"
#include "graph/read.h"

namespace lanewise {

struct Instance {
  int node = -1;  // index into Spec::nodes; -1: put in by lanewise
  int instance = 0;
  const NodeType* type = nullptr;
  std::string id, device;
};

// `edges` holds indices into `instances`; it is sorted by consumer, port, and order in the file.
struct Wiring {
  std::vector<Instance> instances;
  std::vector<PlanEdge> edges;
  bool sound = true;  // no problem was found: every required port is fed, and so on
};

// `gpus`: of each of so many hosts.
Wiring expand(const Spec& spec, const Document& document, int gpus, int hosts, std::vector<Problem>& problems);

// The wiring of the evaluation: without reduction, optimizer, what hangs only off them, and feedback; with a node
// "score" that reads every lane's prediction. Requires: a sound wiring.
Wiring expand_evaluation(const Wiring& train, const NodeType& score);

}  // namespace lanewise
