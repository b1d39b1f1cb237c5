// The node types that come with lanewise, each made by the function of its .cc file, and the table of all of them.
#pragma once

#include "graph/registry.h"

namespace lanewise {

NodeType sine();
NodeType ar1();
NodeType lorenz();
NodeType constant();
NodeType csv();
NodeType process();
NodeType window();
NodeType normalize();
NodeType fault();
NodeType pair();
NodeType merge();
NodeType compute(const std::vector<PartType>& losses);  // that a lane can be told
NodeType allreduce();
NodeType clip();
NodeType optimizer();
NodeType console();
NodeType metrics();
NodeType predictions();
NodeType score();

// All of them, with the model types and losses of the runtime. Of plugins only descriptors are read.
Registry builtin_registry();

// What a pipeline that trains must be as a whole (Registry::rules): one reduction and one optimizer, every output that
// matters read, and every stream in one lane.
void training_rules(const Plan& plan, std::vector<Problem>& problems);

}  // namespace lanewise
