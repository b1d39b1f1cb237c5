#include "runtime/lane_forward.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/tensors.h"

namespace lanewise {

void mask_rows(std::span<const Tag> rows, at::Tensor& x, at::Tensor& y) {
  const at::Tensor flat_x = x.flatten(0, 1), flat_y = y.flatten(0, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].weight != 0) continue;
    const auto row = static_cast<std::int64_t>(i);
    flat_y[row].zero_();
    if (rows[i].filler) {
      flat_x[row].zero_();
    } else {
      flat_x[row].nan_to_num_(0.0, 0.0, 0.0);
    }
  }
}

at::Tensor forward_afresh(const Model& model, const at::Tensor& x, const Pass& pass) {
  const std::int64_t steps = x.size(0), streams = x.size(1);
  at::Tensor state = at::zeros({steps * streams, model.state_size()}, x.options());
  const at::Tensor all = model.forward(x.flatten(0, 1).unsqueeze(0), state, pass);
  return all.squeeze(0).unflatten(0, {steps, streams});
}

bool begins(std::span<const Tag> rows, std::span<const std::uint64_t> runs, std::int64_t step, std::int64_t i) {
  const auto streams = static_cast<std::int64_t>(runs.size());
  const Tag& tag = rows[step * streams + i];
  return tag.start || tag.run != (step == 0 ? runs[i] : rows[(step - 1) * streams + i].run);
}

bool begins_afresh(std::span<const Tag> rows, std::span<const std::uint64_t> runs, std::int64_t step, std::int64_t i) {
  return begins(rows, runs, step, i) && !rows[step * static_cast<std::int64_t>(runs.size()) + i].filler;
}

// The model runs through as many time steps at once as have neither a beginning among them nor another set of fillers.
at::Tensor forward_from(const Model& model, const at::Tensor& x, at::Tensor& state, std::span<const std::uint64_t> runs,
                        const Pass& pass, const RowsThere* there) {
  const std::int64_t steps = x.size(0), streams = x.size(1);
  const auto row = [&](std::int64_t step, std::int64_t i) -> const Tag& { return pass.rows[step * streams + i]; };
  std::vector<at::Tensor> predictions;
  for (std::int64_t first = 0, next = 0; first < steps; first = next) {
    at::Tensor fresh = at::zeros({streams, 1}, at::kBool), filler = at::zeros({streams, 1}, at::kBool);
    bool any_fresh = false, any_filler = false;
    for (std::int64_t i = 0; i < streams; ++i) {
      fresh.mutable_data_ptr<bool>()[i] = begins_afresh(pass.rows, runs, first, i);
      filler.mutable_data_ptr<bool>()[i] = row(first, i).filler;
      any_fresh = any_fresh || fresh.const_data_ptr<bool>()[i];
      any_filler = any_filler || row(first, i).filler;
    }
    const auto alike = [&](std::int64_t step) {
      for (std::int64_t i = 0; i < streams; ++i) {
        if (begins(pass.rows, runs, step, i) || row(step, i).filler != row(first, i).filler) return false;
      }
      return true;
    };
    next = first + 1;
    while (next < steps && alike(next)) ++next;
    if (any_fresh) state = state.masked_fill(there != nullptr ? there->fresh[first] : fresh.to(x.device()), 0);
    const at::Tensor before = state;
    Pass part = pass;
    part.rows = pass.rows.subspan(first * streams, (next - first) * streams);
    predictions.push_back(model.forward(x.narrow(0, first, next - first), state, part));
    if (any_filler) state = at::where(there != nullptr ? there->filler[first] : filler.to(x.device()), before, state);
  }
  return predictions.size() == 1 ? predictions[0] : at::cat(predictions);
}

std::vector<std::int64_t> counting_rows(std::span<const Tag> rows) {
  std::vector<std::int64_t> counting;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].weight != 0) counting.push_back(static_cast<std::int64_t>(i));
  }
  return counting;
}

at::Tensor counting_losses(const LossType& loss, double delta, const at::Tensor& prediction, const at::Tensor& y,
                           std::span<const Tag> rows, const RowsThere* there) {
  const std::vector<std::int64_t> counting = counting_rows(rows);
  if (counting.empty()) return at::zeros({1, 0}, prediction.options());
  if (counting.size() == rows.size()) return loss.rows(prediction, y, delta);
  const at::Tensor index = there != nullptr ? there->counting : at::tensor(counting, at::kLong).to(prediction.device());
  const auto pick = [&](const at::Tensor& t) { return t.flatten(0, 1).index_select(0, index).unsqueeze(0); };
  return loss.rows(pick(prediction), pick(y), delta);
}

std::vector<double> losses_of_rows(const at::Tensor& counting, std::span<const Tag> rows) {
  const std::vector<double> values = tensor_values(counting.detach().cpu());
  const std::vector<std::int64_t> index = counting_rows(rows);
  std::vector<double> losses(rows.size(), 0.0);
  for (std::size_t i = 0; i < index.size(); ++i) losses[index[i]] = values[i];
  return losses;
}

at::Tensor weighted_sum(const at::Tensor& losses, std::span<const Tag> rows) {
  if (std::ranges::all_of(rows, [](const Tag& t) { return t.weight == 1; })) return losses.sum();
  at::Tensor weights = at::empty(losses.sizes(), at::kDouble);
  double* to = weights.mutable_data_ptr<double>();
  for (const Tag& row : rows) {
    if (row.weight != 0) *to++ = row.weight;
  }
  return (losses * weights.to(losses.device(), losses.scalar_type())).sum();
}

}  // namespace lanewise
