// Whether numbers are finite, without tensors of booleans.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lanewise {

// All of the first `count` elements of a contiguous float32 or float64 tensor are finite.
bool all_finite(const at::Tensor& flat, std::int64_t count);

// The Euclidean norm of the first `count` elements, added up in double in a fixed order.
double norm(const at::Tensor& flat, std::int64_t count);

}  // namespace lanewise
