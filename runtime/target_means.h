// The mean of each stream's targets over the rows trained on, in the units the model sees: the baseline `mean` of
// streams that no normalize node centres.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace lanewise {

// Written by the optimizer's firings, and read while the training rests.
class TargetMeans {
 public:
  explicit TargetMeans(int streams) : sums_(static_cast<std::size_t>(streams)) {}

  // `target`: the elements of a row's y, which count when `weight` is above 0.
  void add(int stream, std::span<const double> target, double weight);
  // Element by element of y; empty before the first row.
  std::vector<double> mean(int stream) const;

  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  struct Sum {
    std::vector<double> values;
    double weight = 0;
  };
  std::vector<Sum> sums_;
};

}  // namespace lanewise
