// What tests of models share: making one, binding it to leaves, and reading a stream from zero state.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/model.h"

namespace lanewise {

// Of so many lanes, for ReplicaOptions: each in a memory domain of its own, or all in one.
inline std::vector<int> domains(bool per_device, int lanes) {
  std::vector<int> all(static_cast<std::size_t>(lanes), 0);
  if (per_device) std::iota(all.begin(), all.end(), 0);
  return all;
}

inline std::unique_ptr<Model> make(const std::string& type, const nlohmann::json& params, const Shape& input,
                                   const Shape& output) {
  return model_type(type).make(params, input, output);
}

// Leaves with arbitrary values, bound to the model with the buffers; by name.
inline std::map<std::string, at::Tensor> bind_some(Model& model, int seed = 1, std::vector<at::Tensor> buffers = {},
                                                   at::ScalarType dtype = at::kDouble) {
  at::manual_seed(seed);
  std::map<std::string, at::Tensor> named;
  std::vector<at::Tensor> leaves;
  for (const ParameterSpec& spec : model.parameters()) {
    leaves.push_back(at::randn(spec.shape, at::kDouble).mul_(0.5).to(dtype).requires_grad_());
    named[spec.name] = leaves.back();
  }
  model.bind(leaves, std::move(buffers));
  return named;
}

// The gradients that a backward has left in the leaves, taken out of them.
inline std::map<std::string, at::Tensor> take_gradients(std::map<std::string, at::Tensor>& leaves) {
  std::map<std::string, at::Tensor> gradients;
  for (auto& [name, leaf] : leaves) {
    gradients[name] = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
  }
  return gradients;
}

// The prediction for x [k, n, …] from zero state, without dropout.
inline at::Tensor predict(const Model& model, const at::Tensor& x) {
  at::Tensor state = at::zeros({x.size(1), model.state_size()}, x.options());
  return model.forward(x, state, {});
}

// The largest difference of two elements, as a share of the largest element where that is above 1.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(1.0, b.abs().max().item<double>());
}

}  // namespace lanewise
