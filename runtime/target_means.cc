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

}  // namespace lanewise
