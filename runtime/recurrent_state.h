// The RecurrentState is what streams have left in a recurrent model: one row a stream, carried from sample to sample.
//
// A lane gathers the rows of its streams, runs the model, and scatters the new rows back, detached. What was scattered
// since the last commit() is undone by roll_back(), so that a step that is not applied leaves no trace.
//
// gather() and scatter() may be called from several lanes' threads at once for different streams; the others while no
// lane runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/values.h"

namespace lanewise {

class RecurrentState {
 public:
  // `size` values a stream, all zero at first; 0: the model has no state.
  RecurrentState(int streams, std::int64_t size, at::ScalarType dtype);

  std::int64_t size() const { return rows_.size(1); }

  // A copy of the rows of these samples' streams: [rows.size(), size()].
  at::Tensor gather(std::span<const Tag> rows) const;
  // The run that a stream's row was left by.
  std::uint64_t run(int stream) const { return runs_[stream]; }
  // Those of these samples' streams.
  std::vector<std::uint64_t> runs_of(std::span<const Tag> rows) const;
  // Keeps `states` [last.size(), size()] as what `last`, each a stream's newest sample, has left.
  void scatter(std::span<const Tag> last, const at::Tensor& states);

  // Keeps what was scattered.
  void commit();
  // Goes back to the last commit. A stream among `dropped` that began a sequence there begins with zeros now.
  void roll_back(std::span<const Tag> dropped);

  // Everything, for a checkpoint: [streams, size()], and the run of each row. As of the last commit.
  const at::Tensor& rows() const { return kept_rows_; }
  const std::vector<std::uint64_t>& runs() const { return kept_runs_; }
  void restore(const at::Tensor& rows, std::vector<std::uint64_t> runs);

 private:
  at::Tensor rows_, kept_rows_;
  std::vector<std::uint64_t> runs_, kept_runs_;
};

}  // namespace lanewise
