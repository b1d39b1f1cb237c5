#include "runtime/scoreboard.h"

#include <ATen/ATen.h>

#include <cstring>

namespace lanewise {
namespace {

// All rows as doubles: [k·n, elements of a row].
at::Tensor rows_of(const at::Tensor& t) { return t.flatten(0, 1).flatten(1).to(at::kDouble).contiguous(); }

std::span<const double> row_of(const at::Tensor& rows, std::size_t i) {
  const auto width = static_cast<std::size_t>(rows.size(1));
  return {rows.const_data_ptr<double>() + i * width, width};
}

}  // namespace

Scoreboard::Scoreboard(const StreamTable& streams, const Units& units, const TargetMeans& means,
                       std::function<bool()> stop_wanted)
    : streams_(streams), units_(units), means_(means), stop_wanted_(std::move(stop_wanted)), totals_(streams.size()) {}

void Scoreboard::add(const Prediction& p, bool counts) {
  const Batch& batch = *p.batch;
  const bool squared = p.prediction.sizes() == batch.y.sizes() && at::isFloatingType(batch.y.scalar_type());
  at::Tensor prediction, target, known;
  if (squared) {
    prediction = rows_of(p.prediction);
    target = rows_of(batch.y);
    known = batch.known.defined() ? rows_of(batch.known) : at::full_like(target, NAN);
  }
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    const Tag& row = batch.rows[i];
    Total& total = totals_[row.stream];
    ++(row.filler ? total.fillers : total.rows);
    if (!counts || row.weight == 0) continue;
    total.n += row.weight;
    total.loss += row.weight * p.losses[i];
    total.squared = squared;
    if (squared) add_row(total, row, row_of(prediction, i), row_of(target, i), row_of(known, i));
  }
}

void Scoreboard::add_row(Total& total, const Tag& row, std::span<const double> p, std::span<const double> y,
                         std::span<const double> known) {
  const std::span<const double> scale = units_.scale(row.stream);
  // A normalised stream's training mean is that of its fit: 0 in the units the model sees.
  const std::vector<double> mean =
      units_.normalized(row.stream) ? std::vector<double>(y.size(), 0.0) : means_.mean(row.stream);
  const double share = row.weight / static_cast<double>(y.size());
  for (std::size_t j = 0; j < y.size(); ++j) {
    const double m = mean.empty() ? 0 : mean[j];
    const double unit = scale.empty() ? 1 : scale[j % scale.size()];
    const auto square = [&](double guess) { return (guess - y[j]) * (guess - y[j]) * share; };
    const double last = square(std::isfinite(known[j]) ? known[j] : m);
    total.mse += square(p[j]);
    total.last += last;
    total.mean += square(m);
    total.raw_mse += square(p[j]) * unit * unit;
    total.raw_last += last * unit * unit;
    total.raw_mean += square(m) * unit * unit;
  }
}

void Scoreboard::share(World& world, const LaneTable& lanes) {
  static_assert(std::is_trivially_copyable_v<Total>);
  const std::size_t bytes = totals_.size() * sizeof(Total);
  const std::vector<std::string> all = world.gather({reinterpret_cast<const char*>(totals_.data()), bytes});
  for (std::size_t s = 0; s < totals_.size(); ++s) {
    const std::string& reader = all[lanes.rank_of_stream(static_cast<int>(s))];
    std::memcpy(&totals_[s], reader.data() + s * sizeof(Total), sizeof(Total));
  }
}

nlohmann::ordered_json Scoreboard::tell(const Total& t) {
  const auto mean = [&](double sum) -> nlohmann::ordered_json {
    if (t.n == 0) return nullptr;
    return sum / t.n;
  };
  const auto square = [&](double sum) -> nlohmann::ordered_json {
    if (!t.squared) return nullptr;
    return mean(sum);
  };
  return {{"loss", mean(t.loss)},
          {"mse", square(t.mse)},
          {"n", t.n},
          {"baselines", {{"last", square(t.last)}, {"mean", square(t.mean)}}},
          {"raw", {{"mse", square(t.raw_mse)}, {"last", square(t.raw_last)}, {"mean", square(t.raw_mean)}}}};
}

nlohmann::ordered_json Scoreboard::result() const {
  Total all;
  nlohmann::ordered_json streams = nlohmann::ordered_json::object();
  for (int s = 0; s < streams_.size(); ++s) {
    const Total& t = totals_[s];
    streams[streams_.name(s)] = tell(t);
    all.n += t.n;
    all.loss += t.loss;
    all.squared = all.squared && t.squared;
    all.mse += t.mse, all.last += t.last, all.mean += t.mean;
    all.raw_mse += t.raw_mse, all.raw_last += t.raw_last, all.raw_mean += t.raw_mean;
  }
  nlohmann::ordered_json result = tell(all);
  result["streams"] = std::move(streams);
  return result;
}

}  // namespace lanewise
