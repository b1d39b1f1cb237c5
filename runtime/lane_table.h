// The lanes of a plan by index, the same in every process, and which of them are this process's own. Fused lanes
// (graph/fuse.h) are one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/cut.h"
#include "graph/plan.h"
#include "runtime/services.h"

namespace lanewise {

class LaneTable {
 public:
  // `whole`: the plan before it was cut.
  LaneTable(const Plan& whole, const StreamTable& streams, int rank = 0, int processes = 1);

  int size() const { return static_cast<int>(lanes_.size()); }
  LaneRange own() const { return own_; }
  int index(const std::string& id) const;  // Requires: a compute node of the plan
  // "lane3 (cpu:3)", or "lane[0..3] (cpu:0)" of fused ones
  std::string text(int lane) const { return lanes_[lane].id + " (" + lanes_[lane].device + ")"; }
  // Indices of the streams that feed it, in the order of its rows.
  std::span<const int> streams(int lane) const { return lanes_[lane].streams; }
  // The lanes that are fused in it, each with its own streams; without, itself.
  struct Part {
    int index = 0;  // of all lanes, those that are fused counted each
    std::string id, device;
    std::vector<int> streams;
    std::string text() const { return id + " (" + device + ")"; }
  };
  std::span<const Part> parts(int lane) const { return lanes_[lane].parts; }
  // The process that a stream is read by; 0 for one that no lane takes.
  int rank_of_stream(int stream) const { return rank_of_stream_[stream]; }
  // "rank 1 (lane4, lane5)"
  std::string process_text(int rank) const;

 private:
  struct Lane {
    std::string id, device;
    std::vector<int> streams;
    std::vector<Part> parts;
  };
  std::vector<Lane> lanes_;
  std::vector<int> rank_of_stream_;
  int processes_ = 1;
  LaneRange own_;
};

}  // namespace lanewise
