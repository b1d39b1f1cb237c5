// Cursors: how far the training has consumed each stream, and from where a resumed run makes its samples again.
//
// Nodes run ahead of the training, so that a checkpoint cannot ask them where they stand. Instead every so many samples
// one carries the states of the nodes it came through (ChainRecord). A cursor keeps the last of these among the samples
// that were consumed; a resumed run restores that chain and drops what was consumed since.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "graph/node.h"
#include "graph/plan.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

struct Cursor {
  std::uint64_t consumed = 0;  // samples, as the join counts them: the seq of the next
  std::uint64_t run = 0;
  std::uint64_t since_start = 0;  // samples since the stream's sequence began
  std::optional<std::int64_t> time;
  std::shared_ptr<const ChainRecord> record;  // null: from the beginning
  std::uint64_t record_seq = 0;               // of the sample that carried it
};

class Cursors {
 public:
  explicit Cursors(int streams) : cursors_(static_cast<std::size_t>(streams)) {}

  // A sample was consumed: its step was applied, or dropped for good. In the order of its stream.
  void take(const Tag& row);
  const Cursor& of(int stream) const { return cursors_[stream]; }

  // For a checkpoint's manifest, by stream id.
  nlohmann::ordered_json save(const StreamTable& streams) const;
  // Throws Error(kCheckpoint) naming a stream that the checkpoint lacks.
  void load(const nlohmann::json& saved, const StreamTable& streams);

  // Sets sources, per-sample nodes and joins of a new flow to go on behind what was consumed. `nodes`: as in the plan.
  void rewind(const Plan& plan, const StreamTable& streams, std::vector<std::unique_ptr<Node>>& nodes) const;

 private:
  std::vector<Cursor> cursors_;
};

}  // namespace lanewise
