// The forward of a lane's batch, on any device: which rows the model sees, from which state each stream goes on, and
// which rows' losses count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loss.h"
#include "runtime/model.h"
#include "runtime/values.h"

namespace lanewise {

// Changes x and y, of one batch and on the host, to what the model may see: NaN·0 is NaN, so what must not count is
// zeroed, not weighted away.
void mask_rows(std::span<const Tag> rows, at::Tensor& x, at::Tensor& y);

// Every sample from zeros: the time steps of the batch are rows like any others. x [k, n, …] -> [k, n, …].
at::Tensor forward_afresh(const Model& model, const at::Tensor& x, const Pass& pass);

// What forward_from() and counting_losses() make of a batch's tags, where x is. A device that is not to wait for a copy
// is given them beforehand.
struct RowsThere {
  at::Tensor fresh, filler;  // [k, n, 1], bool: a sequence begins in this step; the row is a filler
  at::Tensor counting;       // counting_rows()
};

// Every stream from `state` [n, state_size()], which becomes what the streams leave. A stream whose sequence begins, at
// a start or by another run than the one of `runs` that has left its state, goes on from zeros; a filler leaves the
// state as it is.
at::Tensor forward_from(const Model& model, const at::Tensor& x, at::Tensor& state, std::span<const std::uint64_t> runs,
                        const Pass& pass, const RowsThere* there = nullptr);

// Whether the sequence of stream i begins at this step of the batch; and so that its state is to be zeros.
bool begins(std::span<const Tag> rows, std::span<const std::uint64_t> runs, std::int64_t step, std::int64_t i);
bool begins_afresh(std::span<const Tag> rows, std::span<const std::uint64_t> runs, std::int64_t step, std::int64_t i);

// The rows that count, by index.
std::vector<std::int64_t> counting_rows(std::span<const Tag> rows);

// The losses of the rows that count, in their order: [1, count], or [k, n] where all do. The others are left out, since
// 0 · r is NaN where r is not finite.
at::Tensor counting_losses(const LossType& loss, double delta, const at::Tensor& prediction, const at::Tensor& y,
                           std::span<const Tag> rows, const RowsThere* there = nullptr);

// The same on the host as one value a row, 0 where the row does not count.
std::vector<double> losses_of_rows(const at::Tensor& counting, std::span<const Tag> rows);

// Σ w·r of these losses, differentiable.
at::Tensor weighted_sum(const at::Tensor& losses, std::span<const Tag> rows);

}  // namespace lanewise
