#include "runtime/kernel.h"

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/dropout.h"
#include "runtime/loss.h"
#include "runtime/tensors.h"
#include "tests/check.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"
#include "tests/runtime/tags.h"

using namespace lanewise;
using nlohmann::json;

namespace {

// With zero gradients, which a kernel adds to.
std::map<std::string, at::Tensor> bind_with_gradients(Model& model, at::ScalarType dtype) {
  std::map<std::string, at::Tensor> leaves = bind_some(model, /*seed=*/1, {}, dtype);
  for (auto& [name, leaf] : leaves) leaf.mutable_grad() = at::zeros_like(leaf);
  return leaves;
}

std::map<std::string, at::Tensor> copies_of_gradients(const std::map<std::string, at::Tensor>& leaves) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, leaf] : leaves) {
    copies[name] = leaf.grad().clone();
    leaf.grad().zero_();
  }
  return copies;
}

struct Case {
  std::string type;
  json params;
  Shape input, output;
};

const std::vector<Case> kCases = {
    {"linear", json::object(), {3}, {1}},
    {"linear", json::object(), {4, 40}, {2, 3}},
    {"mlp", {{"hidden", json::array()}}, {3}, {1}},
    {"mlp", {{"hidden", {128, 128}}}, {8}, {1}},
    {"mlp", {{"hidden", {7, 33}}, {"activation", "tanh"}}, {5}, {3}},
    {"mlp", {{"hidden", {16, 17}}, {"activation", "gelu"}}, {2, 3}, {2, 2}},
    {"mlp", {{"hidden", {31}}, {"activation", "silu"}, {"dropout", 0.4}}, {15}, {4}},
    {"mlp", {{"hidden", {9, 10}}, {"dropout", 0.2}}, {1}, {1}},
};

}  // namespace

TEST_CASE("kernel: predictions and gradients are those of the library and autograd, for any number of rows") {
  const Dropout dropout(7, stream_table({"a", "b", "c"}));
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 2e-6}}) {
    for (const Case& c : kCases) {
      for (const auto& [steps, streams] : {std::pair{1, 1}, {1, 2}, {1, 3}, {3, 2}, {5, 3}}) {
        CAPTURE(c.params.dump());
        CAPTURE(steps);
        CAPTURE(streams);
        json params = c.params;
        params["kernel"] = "native";
        const auto model = make(c.type, params, c.input, c.output);
        auto leaves = bind_with_gradients(*model, dtype);
        Shape shape = {steps, streams};
        shape.insert(shape.end(), c.input.begin(), c.input.end());
        const at::Tensor x = at::randn(shape, at::kDouble).to(dtype);
        const std::vector<Tag> rows = tags(steps, streams);
        const Pass pass{&dropout, rows, true};

        at::Tensor state;
        const at::Tensor expected = model->forward(x, state, pass);
        const at::Tensor slopes = at::randn(expected.sizes(), at::kDouble).to(dtype);
        (expected * slopes).sum().backward();
        const auto right = copies_of_gradients(leaves);

        Kernel* const kernel = model->kernel(steps * streams);
        REQUIRE(kernel != nullptr);
        for (int time = 0; time < 2; ++time) {  // nothing of a forward is left in the next
          const at::Tensor prediction = kernel->forward(x, pass);
          REQUIRE(prediction.sizes() == expected.sizes());
          CHECK(distance(prediction, expected.detach()) <= tolerance);
          kernel->backward(tensor_values(slopes));
          for (const auto& [name, gradient] : copies_of_gradients(leaves)) {
            CAPTURE(name);
            CHECK(distance(gradient, right.at(name)) <= tolerance);
          }
        }
      }
    }
  }
}

TEST_CASE("kernel: gradients are added to what is there, and a row's prediction depends on no other row, bit for bit") {
  const auto model = make("mlp", {{"hidden", {40, 20}}}, {6}, {2});
  auto leaves = bind_with_gradients(*model, at::kFloat);
  const at::Tensor x = at::randn({1, 7, 6});
  Kernel& kernel = *model->kernel(7);
  const at::Tensor all = kernel.forward(x, {});
  const std::vector<double> ones(all.numel(), 1.0);
  kernel.backward(ones);
  const at::Tensor once = leaves.at("0.weight").grad().clone();
  kernel.backward(ones);
  CHECK(distance(leaves.at("0.weight").grad(), 2 * once) <= 1e-6);
  for (int row = 0; row < 7; ++row) CHECK(at::equal(kernel.forward(x.narrow(1, row, 1), {}), all.narrow(1, row, 1)));
}

TEST_CASE("kernel: what is not finite goes through to the prediction, as in the library") {
  const auto model = make("mlp", {{"hidden", {8}}}, {3}, {1});
  bind_with_gradients(*model, at::kDouble);
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    const at::Tensor x = at::full({1, 2, 3}, 0.5, at::kDouble);
    x[0][1][1] = bad;
    const at::Tensor prediction = model->kernel(2)->forward(x, {}), expected = predict(*model, x);
    CHECK(std::isfinite(prediction[0][0].item<double>()));
    CHECK(std::isfinite(prediction[0][1].item<double>()) == std::isfinite(expected[0][1].item<double>()));
  }
}

TEST_CASE("kernel: small batches take it by themselves, large ones and norms do not, and what is asked for wins") {
  const auto takes = [](const json& params, std::int64_t rows) {
    const auto model = make("mlp", params, {8}, {1});
    std::vector<at::Tensor> buffers;
    for (const BufferSpec& spec : model->buffers()) buffers.push_back(at::full(spec.shape, spec.initial, at::kDouble));
    bind_some(*model, 1, buffers);
    return model->kernel(rows) != nullptr;
  };
  CHECK(takes({{"hidden", {128, 128}}}, 16));
  CHECK_FALSE(takes({{"hidden", {128, 128}}}, 1000));
  CHECK(takes({{"hidden", {128, 128}}, {"kernel", "native"}}, 1000));
  CHECK_FALSE(takes({{"hidden", {128, 128}}, {"kernel", "library"}}, 1));
  for (const char* const norm : {"layer", "batch"}) CHECK_FALSE(takes({{"hidden", {8}}, {"norm", norm}}, 1));
  CHECK(error_of([&] { takes({{"hidden", {8}}, {"norm", "layer"}, {"kernel", "native"}}, 1); }) != "");
}

TEST_CASE("loss: a row's loss and slopes without autograd are those with it") {
  at::manual_seed(3);
  for (const LossType& loss : loss_types()) {
    if (loss.load) continue;  // only autograd knows it
    for (const double size : {0.1, 1.0, 50.0}) {
      CAPTURE(loss.name);
      CAPTURE(size);
      const bool classes = loss.name == "cross_entropy";
      const at::Tensor prediction = (size * at::randn({1, 1, 5}, at::kDouble)).requires_grad_();
      const at::Tensor target = classes ? at::full({1, 1, 1}, 3, at::kLong) : size * at::randn({1, 1, 5}, at::kDouble);
      const at::Tensor expected = loss.rows(prediction, target, 0.7);
      expected.sum().backward();
      std::vector<double> slopes(5);
      const double r = loss.row(tensor_values(prediction), tensor_values(target), 0.7, slopes);
      CHECK(r == doctest::Approx(expected.item<double>()).epsilon(1e-12));
      const std::vector<double> right = tensor_values(prediction.grad());
      for (int i = 0; i < 5; ++i) CHECK(std::abs(slopes[i] - right[i]) <= 1e-12 * std::max(1.0, size));
    }
  }
  std::vector<double> slopes(2);
  const std::vector<double> scores = {0, 0}, target = {2};
  CHECK(error_of([&] { loss_type("cross_entropy").row(scores, target, 1, slopes); }) ==
        "4: cross_entropy: the target 2 is none of the classes 0 to 1; give the model as many outputs as there are "
        "classes");
}
