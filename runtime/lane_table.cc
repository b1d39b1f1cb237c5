#include "runtime/lane_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace lanewise {

LaneTable::LaneTable(const Plan& whole, const StreamTable& streams, int rank, int processes)
    : rank_of_stream_(static_cast<std::size_t>(streams.size()), 0), processes_(processes) {
  int index = 0;
  for (const int at : whole.with_role(Role::kCompute)) {
    const PlanNode& node = whole.nodes[at];
    const PlanEdge& edge = whole.edges[node.inputs[0]];
    const auto indices = [&](const std::vector<std::string>& ids) {
      std::vector<int> all;
      for (const std::string& id : ids) all.push_back(streams.index(id));
      return all;
    };
    Lane& lane = lanes_.emplace_back(
        Lane{node.id, node.device, indices(whole.nodes[edge.from].signatures[edge.from_port].streams), {}});
    for (const FusedLane& part : node.fused)
      lane.parts.push_back({index++, part.id, part.device, indices(part.streams)});
    if (node.fused.empty()) lane.parts.push_back({index++, lane.id, lane.device, lane.streams});
  }
  own_ = lanes_of(size(), rank, processes);
  for (int r = 0; r < processes; ++r) {
    const LaneRange range = lanes_of(size(), r, processes);
    for (int l = range.begin; l < range.end; ++l) {
      for (const int stream : lanes_[l].streams) rank_of_stream_[stream] = r;
    }
  }
}

int LaneTable::index(const std::string& id) const {
  const auto it = std::ranges::find(lanes_, id, &Lane::id);
  if (it == lanes_.end()) throw Error(Exit::kInternal, fmt::format("\"{}\" is no lane of the plan", id));
  return static_cast<int>(it - lanes_.begin());
}

std::string LaneTable::process_text(int rank) const {
  const LaneRange range = lanes_of(size(), rank, processes_);
  std::string ids;
  for (int l = range.begin; l < range.end; ++l) ids += (ids.empty() ? "" : ", ") + lanes_[l].id;
  return fmt::format("rank {} ({})", rank, ids);
}

}  // namespace lanewise
