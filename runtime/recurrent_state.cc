#include "runtime/recurrent_state.h"

#include <ATen/ATen.h>

#include <cstring>

#include "graph/error.h"

namespace lanewise {
namespace {

char* row_of(const at::Tensor& table, std::int64_t index) {
  const std::size_t bytes = static_cast<std::size_t>(table.size(1)) * table.element_size();
  return static_cast<char*>(table.data_ptr()) + static_cast<std::size_t>(index) * bytes;
}

// Tables of a model without state have no memory at all.
void copy_all(at::Tensor& to, const at::Tensor& from) {
  if (from.nbytes() > 0) std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace

RecurrentState::RecurrentState(int streams, std::int64_t size, at::ScalarType dtype)
    : rows_(at::zeros({streams, size}, dtype)),
      kept_rows_(at::zeros_like(rows_)),
      runs_(static_cast<std::size_t>(streams)),
      kept_runs_(runs_) {}

// Plain copies of memory: rows of one tensor are written by several threads, which its version counter is not meant
// for.

at::Tensor RecurrentState::gather(std::span<const Tag> rows) const {
  at::Tensor states = at::empty({static_cast<std::int64_t>(rows.size()), size()}, rows_.options());
  const std::size_t bytes = static_cast<std::size_t>(size()) * rows_.element_size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(row_of(states, static_cast<std::int64_t>(i)), row_of(rows_, rows[i].stream), bytes);
  }
  return states;
}

std::vector<std::uint64_t> RecurrentState::runs_of(std::span<const Tag> rows) const {
  std::vector<std::uint64_t> runs;
  for (const Tag& row : rows) runs.push_back(runs_[row.stream]);
  return runs;
}

void RecurrentState::scatter(std::span<const Tag> last, const at::Tensor& states) {
  const at::Tensor dense = states.detach().contiguous();
  const std::size_t bytes = static_cast<std::size_t>(size()) * rows_.element_size();
  for (std::size_t i = 0; i < last.size(); ++i) {
    std::memcpy(row_of(rows_, last[i].stream), row_of(dense, static_cast<std::int64_t>(i)), bytes);
    runs_[last[i].stream] = last[i].run;
  }
}

void RecurrentState::commit() {
  copy_all(kept_rows_, rows_);
  kept_runs_ = runs_;
}

void RecurrentState::roll_back(std::span<const Tag> dropped) {
  copy_all(rows_, kept_rows_);
  runs_ = kept_runs_;
  for (const Tag& row : dropped) {
    if (!row.start) continue;
    rows_[row.stream].zero_();
    runs_[row.stream] = row.run;
  }
  commit();
}

void RecurrentState::restore(const at::Tensor& rows, std::vector<std::uint64_t> runs) {
  if (rows.sizes() != rows_.sizes() || rows.scalar_type() != rows_.scalar_type() || runs.size() != runs_.size()) {
    throw Error(Exit::kCheckpoint, "the recurrent state of the checkpoint has another shape than this pipeline's");
  }
  rows_.copy_(rows);
  runs_ = std::move(runs);
  commit();
}

}  // namespace lanewise
