#include "runtime/moments.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/tensors.h"

namespace lanewise {

void Moments::add(const at::Tensor& values) {
  const auto columns = static_cast<std::size_t>(columns_of(values));
  if (count_.empty()) {
    count_.assign(columns, 0);
    mean_.assign(columns, 0);
    squares_.assign(columns, 0);
  }
  const std::vector<double> flat = tensor_values(values);
  for (std::size_t i = 0; i < flat.size(); ++i) {
    const std::size_t c = i % columns;
    if (!std::isfinite(flat[i])) continue;
    const double difference = flat[i] - mean_[c];
    mean_[c] += difference / ++count_[c];
    squares_[c] += difference * (flat[i] - mean_[c]);
  }
}

std::vector<double> Moments::scale() const {
  std::vector<double> scale;
  for (std::size_t c = 0; c < count_.size(); ++c) {
    const double deviation = count_[c] > 0 ? std::sqrt(squares_[c] / count_[c]) : 0;
    scale.push_back(deviation > 1e-12 * std::abs(mean_[c]) ? deviation : 1);
  }
  return scale;
}

nlohmann::json Moments::state() const { return {{"count", count_}, {"mean", mean_}, {"squares", squares_}}; }

void Moments::restore(const nlohmann::json& state) {
  count_ = state.at("count").get<std::vector<double>>();
  mean_ = state.at("mean").get<std::vector<double>>();
  squares_ = state.at("squares").get<std::vector<double>>();
}

}  // namespace lanewise
