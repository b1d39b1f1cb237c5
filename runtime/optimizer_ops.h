// Optimizer steps over one flat tensor: all parameters of a memory domain in one fused operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/fields.h"
#include "runtime/replica.h"
#include "runtime/safetensors.h"
#include "runtime/schedule.h"

namespace lanewise {

struct OptimizerParams {
  std::string name = "adamw";
  double lr = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  std::optional<double> weight_decay;  // absent: 0.01 for adamw, else 0
  Schedule schedule;

  void fields(Fields& f);
};

// The state of one memory domain's optimizer, and its step. Called by one thread at a time.
class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;

  // Changes `weights` [parameters] by one step against `gradient`, of the same shape and dtype, which is not changed.
  // Autograd does not see the change: Replicas::mark_changed() is to follow. Where weight and gradient are zero, as in
  // the padding between parameters, weights stay zero.
  // `held`: a float32 of the weights' device, 1: nothing changes at all, 0; undefined: 0.
  virtual void step(at::Tensor& weights, const at::Tensor& gradient, double lr, const at::Tensor& held = {}) = 0;

  // What it keeps between steps, by name; the tensors are its own, so that writing to them restores.
  virtual std::vector<NamedTensor> state() const = 0;
};

// For weights like these, which are only looked at.
std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerParams& params, const at::Tensor& weights);

// The optimizers of all memory domains of a run, which take every step alike. Used by one thread at a time.
class Optimizers {
 public:
  Optimizers(const OptimizerParams& params, Replicas& replicas);

  // Steps every domain by its reduced gradient, and tells autograd.
  void step(double lr);
  // One domain, which `held` may hold back (FlatOptimizer).
  void step(int domain, double lr, const at::Tensor& held);
  // Of the first domain; the others hold the same.
  std::vector<NamedTensor> state() const { return domains_.front()->state(); }
  // Throws Error(kCheckpoint) where `find` has no tensor of that name and shape.
  void restore(const std::function<const at::Tensor*(const std::string& name)>& find);

 private:
  Replicas& replicas_;
  std::vector<std::unique_ptr<FlatOptimizer>> domains_;
};

}  // namespace lanewise
