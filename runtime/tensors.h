// The few things nodes do with tensors besides computing: making them from doubles, and keeping them in a node's state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "graph/signature.h"

namespace lanewise {

// Sets a dense tensor of kFloat or kDouble on the host; each value is rounded once. Requires: as many values as
// elements.
void copy_values(std::span<const double> values, const at::Tensor& tensor);
// A tensor of kFloat or kDouble; each value is rounded once. Requires: as many values as the shape has elements.
at::Tensor make_tensor(std::span<const double> values, const Shape& shape, at::ScalarType dtype);

// The elements in row-major order as doubles.
std::vector<double> tensor_values(const at::Tensor& tensor);

// Sets an element of a contiguous float32 or float64 tensor on the host, counted in row-major order.
void set_element(const at::Tensor& tensor, std::int64_t index, double value);

// The elements of a dense tensor of T on the host.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}
// Calls `act` with a value of the type of a float32 or float64 tensor's elements.
template <class Act>
void with_type(const at::Tensor& tensor, const Act& act) {
  if (tensor.scalar_type() == at::kDouble) {
    act(double{});
  } else {
    act(float{});
  }
}

Shape shape_of(const at::Tensor& tensor);

// Copies the elements of a tensor on the host, in row-major order; gives where they end.
char* copy_elements(const at::Tensor& from, char* to);

// The elements as they lie in memory. Requires: contiguous, on the host.
std::string_view raw_bytes(const at::Tensor& tensor);

// Elements of the last axis; 1 for a tensor of rank 0.
std::int64_t columns_of(const at::Tensor& tensor);

// A tensor as part of a node's state, bit for bit; null for an undefined one.
nlohmann::json save_tensor(const at::Tensor& tensor);
at::Tensor load_tensor(const nlohmann::json& saved);

}  // namespace lanewise
