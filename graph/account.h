// What the counters of a flow say: that nothing was lost, and, when nothing moves, who waits for whom.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/stage.h"

namespace lanewise {

std::vector<EdgeReport> report_edges(const Plan& plan, const std::deque<Edge>& edges);
std::vector<NodeReport> report_nodes(const std::deque<Stage>& stages);
// Fills in the shares from the seconds.
void work_out_shares(NodeReport& node);

// One line a node that cannot fire, root causes first: "pair1 waits for gen3 (ended after 50 samples); gen2 -> pair1
// holds 4 of 4", "gen2 is blocked by pair1". May be called from any thread.
std::vector<std::string> waiting_lines(const std::deque<Stage>& stages);

// The lines as one message of bounded length.
std::string stall_message(const std::vector<std::string>& lines);

// Throws an internal Error naming every edge and node whose accounts do not balance. Only while the flow rests.
//   edge        put = taken + left, left = fill, fill and deepest <= capacity
//   per-sample  samples in = samples out (on each edge of the first port) + absorbed + held by the node
void check_accounts(const Plan& plan, const std::deque<Stage>& stages, const std::deque<Edge>& edges);

}  // namespace lanewise
