// A Kernel is a model's forward and backward without autograd: for models whose operations are so small that the
// library's cost of calling them is above that of their mathematics.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lanewise {

struct Pass;

// One thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // As Model::forward, of a model without state: x [k, n, …sample] -> prediction [k, n, …output], on the host. Keeps
  // what backward() needs.
  virtual at::Tensor forward(const at::Tensor& x, const Pass& pass) = 0;
  // Adds the gradients of Σ gradient · prediction to those of the parameters. `gradient`: as many values as the last
  // forward's prediction has, row by row.
  virtual void backward(std::span<const double> gradient) = 0;
};

// What an mlp of one width after the other is made of. Layer i has leaves 2·i (weight [out, in]) and 2·i + 1 (bias).
struct MlpSettings {
  std::string activation = "relu";  // tanh, gelu, silu
  double dropout = 0;
  std::vector<std::int64_t> output;  // shape, without a batch axis
};

// `leaves`: float32 or float64, on the host; when backward() is called they have dense gradients.
std::unique_ptr<Kernel> make_mlp_kernel(MlpSettings settings, const std::vector<at::Tensor>& leaves);

}  // namespace lanewise
