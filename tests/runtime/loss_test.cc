#include "runtime/loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tests/check.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

at::Tensor numbers(const std::vector<double>& elements, at::IntArrayRef shape) {
  return at::tensor(elements, at::kDouble).view(shape);
}

at::Tensor classes(const std::vector<std::int64_t>& elements, at::IntArrayRef shape) {
  return at::tensor(elements, at::kLong).view(shape);
}

// "0.25 4", of all elements in order.
std::string values(const at::Tensor& tensor) {
  std::string text;
  const at::Tensor flat = tensor.detach().contiguous();
  for (const double value : std::span(flat.const_data_ptr<double>(), flat.numel())) {
    text += fmt::format("{}{:.6g}", text.empty() ? "" : " ", value);
  }
  return text;
}

at::Tensor rows(const std::string& loss, const at::Tensor& prediction, const at::Tensor& target, double delta = 1) {
  return loss_type(loss).rows(prediction, target, delta);
}

Shape shape(const std::string& loss, const Shape& target, bool integer, std::optional<Shape> outputs = std::nullopt) {
  return loss_type(loss).output_shape(target, integer, outputs);
}

}  // namespace

TEST_CASE("loss: mse is a row's mean squared difference, of whatever shape its target has") {
  const at::Tensor r = rows("mse", numbers({1, 2, 3, 4}, {1, 2, 2}), numbers({1, 4, 0, 0}, {1, 2, 2}));
  CHECK(r.sizes() == at::IntArrayRef({1, 2}));
  CHECK(values(r) == "2 12.5");
  const at::Tensor wide = rows("mse", numbers({1, 2, 3, 4}, {2, 1, 2, 1}), numbers({1, 4, 0, 0}, {2, 1, 2, 1}));
  CHECK(wide.sizes() == at::IntArrayRef({2, 1}));
  CHECK(values(wide) == "2 12.5");
}

TEST_CASE("loss: huber is quadratic up to delta and linear beyond") {
  const at::Tensor r = rows("huber", numbers({0.5, 2, -4}, {3, 1, 1}), numbers({0, 0, 0}, {3, 1, 1}), 2);
  CHECK(values(r) == "0.125 2 6");
}

TEST_CASE("loss: cross_entropy is minus the logarithm of the right class's share") {
  const at::Tensor scores = numbers({std::log(1.0), std::log(3.0), std::log(2.0), std::log(2.0)}, {1, 2, 2});
  CHECK(values(rows("cross_entropy", scores, classes({1, 0}, {1, 2, 1}))) ==
        fmt::format("{:.6g} {:.6g}", -std::log(0.75), -std::log(0.5)));
}

TEST_CASE("loss: gradients reach the prediction") {
  at::Tensor prediction = numbers({1, 2}, {1, 2, 1}).requires_grad_();
  rows("mse", prediction, numbers({0, 0}, {1, 2, 1})).sum().backward();
  CHECK(values(prediction.grad()) == "2 4");

  at::Tensor scores = numbers({0, 0}, {1, 1, 2}).requires_grad_();
  rows("cross_entropy", scores, classes({1}, {1, 1, 1})).sum().backward();
  CHECK(values(scores.grad()) == "0.5 -0.5");
}

TEST_CASE("loss: unequal shapes are refused, never broadcast") {
  CHECK(error_of([] {
          rows("mse", numbers({1, 2}, {1, 2, 1}), numbers({1, 2}, {1, 2}));
        }) == "70: mse: prediction [1, 2, 1] and target [1, 2] have different shapes");
  CHECK(error_of([] {
          rows("huber", numbers({1, 2}, {1, 2, 1}), numbers({1, 2, 3, 4}, {1, 2, 2}));
        }) == "70: huber: prediction [1, 2, 1] and target [1, 2, 2] have different shapes");
  CHECK(error_of([] {
          rows("cross_entropy", numbers({1, 2}, {1, 1, 2}), classes({1, 0}, {1, 2, 1}));
        }) == "70: cross_entropy: prediction [1, 1, 2] and target [1, 2, 1] do not go together");
}

TEST_CASE("loss: a class number outside the classes is an error of the data") {
  const std::string rest = "is none of the classes 0 to 1; give the model as many outputs as there are classes";
  for (const int number : {2, -1, -100}) {
    CHECK(error_of([&] {
            rows("cross_entropy", numbers({1, 2}, {1, 1, 2}), classes({number}, {1, 1, 1}));
          }) == fmt::format("4: cross_entropy: the target {} {}", number, rest));
  }
}

TEST_CASE("loss: each declares the prediction's shape for a target's") {
  CHECK(shape("mse", {3, 2}, false) == Shape{3, 2});
  CHECK(shape("huber", {1}, false, Shape{1}) == Shape{1});
  CHECK(shape("mse", {3, 2}, false, Shape{6}) == Shape{3, 2});
  CHECK(shape("cross_entropy", {1}, true, Shape{5}) == Shape{5});
}

TEST_CASE("loss: a target that does not suit is refused with what would") {
  CHECK(error_of([] { shape("mse", {1}, true); }) ==
        "3: mse takes targets that are numbers, not class numbers; use cross_entropy");
  CHECK(error_of([] { shape("mse", {2}, false, Shape{3}); }) ==
        "3: the model gives 3 values, but mse needs one for each value of the target [2]");
  CHECK(error_of([] { shape("huber", {}, false); }) == "3: huber takes targets of rank 1 or more");
  CHECK(error_of([] { shape("cross_entropy", {1}, false, Shape{5}); }) ==
        "3: cross_entropy takes one class number a sample (an integer target [1]), not numbers [1]");
  CHECK(error_of([] { shape("cross_entropy", {2}, true, Shape{5}); }) ==
        "3: cross_entropy takes one class number a sample (an integer target [1]), not [2]");
  CHECK(error_of([] { shape("cross_entropy", {1}, true); }) ==
        "3: cross_entropy needs to know how many classes there are; give the model outputs");
}
