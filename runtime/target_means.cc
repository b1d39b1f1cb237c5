#include "runtime/target_means.h"

namespace lanewise {

void TargetMeans::add(int stream, std::span<const double> target, double weight) {
  if (weight == 0) return;
  Sum& sum = sums_[static_cast<std::size_t>(stream)];
  sum.values.resize(target.size());
  for (std::size_t i = 0; i < target.size(); ++i) sum.values[i] += weight * target[i];
  sum.weight += weight;
}

std::vector<double> TargetMeans::mean(int stream) const {
  const Sum& sum = sums_[static_cast<std::size_t>(stream)];
  std::vector<double> mean = sum.values;
  for (double& value : mean) value /= sum.weight;
  return mean;
}

nlohmann::json TargetMeans::state() const {
  nlohmann::json all = nlohmann::json::array();
  for (const Sum& sum : sums_) all.push_back({{"values", sum.values}, {"weight", sum.weight}});
  return all;
}

void TargetMeans::restore(const nlohmann::json& state) {
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    sums_[s].values = state.at(s).at("values").get<std::vector<double>>();
    sums_[s].weight = state.at(s).at("weight");
  }
}

}  // namespace lanewise
