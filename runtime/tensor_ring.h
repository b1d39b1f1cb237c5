// The tensors of a node that sends one after another. A tensor that nobody holds any more is given again, so that a
// steady stream allocates nothing; what is still held is never given.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace lanewise {

// For one thread at a time; the tensors may be let go by any.
class TensorRing {
 public:
  // A dense tensor on the host that nobody else holds, nor a view of it. Its values are undefined.
  at::Tensor next(at::IntArrayRef shape, at::ScalarType dtype);

 private:
  std::vector<at::Tensor> tensors_;  // by age, from oldest_ on and around
  std::size_t oldest_ = 0;
};

}  // namespace lanewise
