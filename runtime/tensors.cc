#include "runtime/tensors.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "graph/error.h"

namespace lanewise {

void copy_values(std::span<const double> values, const at::Tensor& tensor) {
  with_type(tensor, [&]<class T>(T) {
    std::ranges::transform(values, data_of<T>(tensor), [](double v) { return static_cast<T>(v); });
  });
}

at::Tensor make_tensor(std::span<const double> values, const Shape& shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  copy_values(values, tensor);
  return tensor;
}

std::vector<double> tensor_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  std::vector<double> values(static_cast<std::size_t>(flat.numel()));
  const auto n = values.size();
  switch (flat.scalar_type()) {
    case at::kFloat:
      std::copy_n(flat.const_data_ptr<float>(), n, values.begin());
      break;
    case at::kDouble:
      std::copy_n(flat.const_data_ptr<double>(), n, values.begin());
      break;
    default: {
      const at::Tensor doubles = flat.to(at::kDouble);
      std::copy_n(doubles.const_data_ptr<double>(), n, values.begin());
    }
  }
  return values;
}

void set_element(const at::Tensor& tensor, std::int64_t index, double value) {
  if (tensor.scalar_type() == at::kFloat) {
    tensor.mutable_data_ptr<float>()[index] = static_cast<float>(value);
  } else {
    tensor.mutable_data_ptr<double>()[index] = value;
  }
}

Shape shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

char* copy_elements(const at::Tensor& from, char* to) {
  if (!from.is_contiguous()) return copy_elements(from.contiguous(), to);
  std::memcpy(to, from.const_data_ptr(), from.nbytes());
  return to + from.nbytes();
}

std::string_view raw_bytes(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::int64_t columns_of(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(-1); }

nlohmann::json save_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const at::Tensor dense = tensor.contiguous();
  const std::string_view text = raw_bytes(dense);
  const std::span bytes(reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return {{"shape", shape_of(tensor)},
          {"type", static_cast<int>(tensor.scalar_type())},
          {"hex", fmt::format("{:02x}", fmt::join(bytes, ""))}};
}

at::Tensor load_tensor(const nlohmann::json& saved) {
  if (saved.is_null()) return {};
  const auto& hex = saved.at("hex").get_ref<const std::string&>();
  at::Tensor tensor =
      at::empty(saved.at("shape").get<Shape>(), static_cast<at::ScalarType>(saved.at("type").get<int>()));
  auto* const bytes = static_cast<unsigned char*>(tensor.data_ptr());
  bool good = hex.size() == 2 * tensor.nbytes();
  for (std::size_t i = 0; good && i < tensor.nbytes(); ++i) {
    good = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16).ptr == hex.data() + 2 * i + 2;
  }
  if (!good) throw Error(Exit::kCheckpoint, "a tensor in a node's state does not have the bytes that its shape needs");
  return tensor;
}

}  // namespace lanewise
