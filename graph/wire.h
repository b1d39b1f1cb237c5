// The wiring of a Spec's nodes before they are multiplied: which output feeds which port, and in what order nodes
// stand.
#pragma once

#include <string>
#include <vector>

#include "graph/document.h"
#include "graph/read.h"

namespace lanewise {

// One entry of "in", resolved.
struct Wire {
  const InputSpec* input = nullptr;
  int from = 0, to = 0;  // indices into Spec::nodes
  int instance = -1;     // of the producer; -1: all
  int from_port = 0, to_port = 0;
};

struct Wires {
  std::vector<Wire> wires;  // in file order
  bool sound = true;        // no problem was found
};

// Resolves "from" and "port" and checks ports and what they carry.
Wires wire(const Spec& spec, const Document& document, std::vector<Problem>& problems);

// The nodes in an order in which inputs come first, wires with `initial` aside, else in file order. A cycle is a
// problem.
std::vector<int> order(const Spec& spec, Wires& wires, const Document& document, std::vector<Problem>& problems);

}  // namespace lanewise
