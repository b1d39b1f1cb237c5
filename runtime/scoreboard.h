// The Scoreboard adds up an evaluation: the loss and the squared error of the model and of two baselines, over exactly
// the same targets, pooled and per stream, in the units the model sees and in the original ones.
//
//   last   the stream's last valid target known when the forecast was due (none yet: its training mean)
//   mean   the stream's training mean
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/evaluation.h"
#include "runtime/lane_table.h"
#include "runtime/services.h"
#include "runtime/target_means.h"
#include "runtime/values.h"
#include "runtime/world.h"

namespace lanewise {

class Scoreboard final : public PredictionSink {
 public:
  Scoreboard(const StreamTable& streams, const Units& units, const TargetMeans& means,
             std::function<bool()> stop_wanted);

  // Adds the rows of weight above 0, always in the same order, so that sums are the same bits at every evaluation.
  void add(const Prediction& prediction, bool counts) override;
  bool stop_wanted() const override { return stop_wanted_(); }

  // Takes the streams that other processes read from them.
  void share(World& world, const LaneTable& lanes);

  // {loss, mse, n, baselines: {last, mean}, raw: {mse, last, mean}, streams: {id: {…}}}; mse and what follows from it
  // are null where targets are class numbers, everything where n is 0.
  nlohmann::ordered_json result() const;
  // Rows seen of a stream that were no fillers, and fillers.
  std::uint64_t evaluated(int stream) const { return totals_[stream].rows; }
  std::uint64_t fillers(int stream) const { return totals_[stream].fillers; }

 private:
  struct Total {
    std::uint64_t rows = 0, fillers = 0;
    double n = 0, loss = 0;                          // Σ w, Σ w·r
    bool squared = true;                             // the prediction is shaped like the target
    double mse = 0, last = 0, mean = 0;              // Σ w · squared error, mean over a row's elements
    double raw_mse = 0, raw_last = 0, raw_mean = 0;  // the same in original units
  };
  void add_row(Total& total, const Tag& row, std::span<const double> p, std::span<const double> y,
               std::span<const double> known);
  static nlohmann::ordered_json tell(const Total& total);

  const StreamTable& streams_;
  const Units& units_;
  const TargetMeans& means_;
  const std::function<bool()> stop_wanted_;
  std::vector<Total> totals_;
};

}  // namespace lanewise
