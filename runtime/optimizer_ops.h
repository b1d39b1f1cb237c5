// Optimizer steps over one flat tensor: all parameters of a memory domain in one fused operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/fields.h"

namespace lanewise {

struct OptimizerParams {
  std::string name = "adamw";
  double lr = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  std::optional<double> weight_decay;  // absent: 0.01 for adamw, else 0

  void fields(Fields& f);
};

// The state of one memory domain's optimizer, and its step. Called by one thread at a time.
class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;

  // Changes `weights` [parameters] by one step against `gradient`, of the same shape and dtype, which is not changed.
  // Autograd does not see the change: Replicas::mark_changed() is to follow. Where weight and gradient are zero, as in
  // the padding between parameters, weights stay zero.
  virtual void step(at::Tensor& weights, const at::Tensor& gradient, double lr) = 0;
};

// For weights like these, which are only looked at.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerParams& params, const at::Tensor& weights);

}  // namespace lanewise
