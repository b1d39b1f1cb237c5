// Moments gathers mean and population standard deviation per column, one tensor at a time, in double (Welford's
// update).
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace lanewise {

class Moments {
 public:
  // Takes the elements of each column of the last axis; those that are not finite do not count.
  void add(const at::Tensor& values);

  // Of a column without any value: mean 0. Empty before the first add().
  std::vector<double> mean() const { return mean_; }
  // The standard deviation; 1 where it is 0, or so small beside the mean that only rounding made it.
  std::vector<double> scale() const;

  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  std::vector<double> count_, mean_, squares_;  // squares: sum of squared differences from the mean
};

}  // namespace lanewise
