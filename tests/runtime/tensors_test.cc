#include "runtime/tensors.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "tests/check.h"

namespace lanewise {
namespace {

TEST_CASE("tensors: doubles are rounded once to the dtype, in row-major order") {
  const std::vector<double> values = {0.1, 1e40, -2, 3};
  const at::Tensor narrow = make_tensor(values, {2, 2}, at::kFloat), wide = make_tensor(values, {2, 2}, at::kDouble);
  CHECK(narrow[0][0].item<float>() == 0.1f);
  CHECK(std::isinf(narrow[0][1].item<float>()));
  CHECK(tensor_values(wide) == values);
  CHECK(tensor_values(wide.t()) == std::vector<double>{0.1, -2, 1e40, 3});
  CHECK(shape_of(wide) == Shape{2, 2});
}

TEST_CASE("tensors: a tensor comes back from a state bit for bit, NaN and integers too, also through CBOR") {
  const std::vector<at::Tensor> tensors = {at::tensor({0.1f, -0.0f, std::nanf("")}), at::tensor({0.1, 1e300}),
                                           at::full({1}, 7, at::kLong), at::zeros({0, 3}), at::Tensor()};
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor back = load_tensor(nlohmann::json::from_cbor(nlohmann::json::to_cbor(save_tensor(tensor))));
    REQUIRE(back.defined() == tensor.defined());
    if (!tensor.defined()) continue;
    CHECK((back.scalar_type() == tensor.scalar_type()));
    CHECK(shape_of(back) == shape_of(tensor));
    CHECK(at::allclose(back, tensor, 0, 0, /*equal_nan=*/true));
    if (at::isFloatingType(tensor.scalar_type())) CHECK(at::equal(back.signbit(), tensor.signbit()));
  }
}

}  // namespace
}  // namespace lanewise
