// Whether two trainings are the same mathematics: what the exactness tests compare by.
//
//   weights: ‖w_a - w_b‖ / ‖w_b‖ over all weights as one vector
//   loss:    the largest |Δloss| / max(|loss_b|, 1e-3)
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace lanewise {

struct TrainedRun {
  std::vector<double> losses;                 // one a step
  std::map<std::string, at::Tensor> weights;  // at the end, by state-dict name

  at::Tensor flat() const {
    std::vector<at::Tensor> parts;
    for (const auto& [name, weight] : weights) parts.push_back(weight.detach().to(at::kDouble).reshape({-1}));
    return at::cat(parts);
  }
};

struct Verdict {
  std::string word;  // "equal" or "different"
  double weights = 0, loss = 0;
  std::string text() const { return fmt::format("{}: weights {:.2e}, loss {:.2e}", word, weights, loss); }
};

// "equal" when both figures are at most `tolerance`; NaN and runs of other lengths or shapes are "different".
inline Verdict compare_runs(const TrainedRun& a, const TrainedRun& b, double tolerance) {
  const at::Tensor wa = a.flat(), wb = b.flat();
  if (wa.sizes() != wb.sizes() || a.losses.size() != b.losses.size() || b.losses.empty()) return {"different"};
  Verdict verdict{"different", ((wa - wb).norm() / wb.norm()).item<double>(), 0};
  for (std::size_t i = 0; i < b.losses.size(); ++i) {
    const double difference = std::abs(a.losses[i] - b.losses[i]) / std::max(std::abs(b.losses[i]), 1e-3);
    if (!(difference <= verdict.loss)) verdict.loss = difference;  // also takes a NaN
    if (std::isnan(difference)) break;
  }
  if (verdict.weights <= tolerance && verdict.loss <= tolerance) verdict.word = "equal";
  return verdict;
}

}  // namespace lanewise
