#include "runtime/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lanewise {

at::Tensor make_tensor(std::span<const double> values, const Shape& shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  if (dtype == at::kFloat) {
    std::transform(values.begin(), values.end(), tensor.mutable_data_ptr<float>(),
                   [](double v) { return static_cast<float>(v); });
  } else {
    std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  }
  return tensor;
}

std::vector<double> tensor_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  std::vector<double> values(static_cast<std::size_t>(flat.numel()));
  const auto n = values.size();
  switch (flat.scalar_type()) {
    case at::kFloat: std::copy_n(flat.const_data_ptr<float>(), n, values.begin()); break;
    case at::kDouble: std::copy_n(flat.const_data_ptr<double>(), n, values.begin()); break;
    default: {
      const at::Tensor doubles = flat.to(at::kDouble);
      std::copy_n(doubles.const_data_ptr<double>(), n, values.begin());
    }
  }
  return values;
}

Shape shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

std::int64_t columns_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(-1); }

nlohmann::json save_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return {{"shape", shape_of(tensor)}, {"type", static_cast<int>(tensor.scalar_type())}, {"values", tensor_values(tensor)}};
}

at::Tensor load_tensor(const nlohmann::json& saved) {
  if (saved.is_null()) return {};
  const auto values = saved.at("values").get<std::vector<double>>();
  const auto type = static_cast<at::ScalarType>(saved.at("type").get<int>());
  const at::Tensor doubles = make_tensor(values, saved.at("shape").get<Shape>(), at::kDouble);
  return type == at::kDouble ? doubles : doubles.to(type);
}

}  // namespace lanewise
