#include "runtime/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/values.h"
#include "tests/check.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"

using namespace lanewise;
using nlohmann::json;

namespace {

// "weight [1, 3] 0.577; bias [1] 0.577"
std::string print(const Model& model) {
  std::string text;
  for (const ParameterSpec& spec : model.parameters()) {
    text += fmt::format("{}{} {} {:.3f}", text.empty() ? "" : "; ", spec.name, to_string(spec.shape), spec.bound);
  }
  return text;
}

}  // namespace

TEST_CASE("model: the table holds linear, mlp, gru, lstm and torchscript") {
  std::string names;
  for (const ModelType& type : model_types()) names += type.name + " ";
  CHECK(names == "linear mlp gru lstm torchscript ");
}

TEST_CASE("model: parameters have the names, shapes and bounds of PyTorch's layers") {
  CHECK(print(*make("linear", json::object(), {2, 3}, {4})) == "weight [4, 6] 0.408; bias [4] 0.408");
  CHECK(print(*make("mlp", {{"hidden", {5, 4}}}, {9}, {1})) ==
        "0.weight [5, 9] 0.333; 0.bias [5] 0.333; 2.weight [4, 5] 0.447; 2.bias [4] 0.447; "
        "4.weight [1, 4] 0.500; 4.bias [1] 0.500");
  CHECK(print(*make("mlp", {{"hidden", json::array()}}, {4}, {1})) == "0.weight [1, 4] 0.500; 0.bias [1] 0.500");
  CHECK(print(*make("gru", {{"hidden", 4}, {"layers", 2}}, {7, 3}, {2, 1})) ==
        "rnn.weight_ih_l0 [12, 3] 0.500; rnn.weight_hh_l0 [12, 4] 0.500; rnn.bias_ih_l0 [12] 0.500; "
        "rnn.bias_hh_l0 [12] 0.500; rnn.weight_ih_l1 [12, 4] 0.500; rnn.weight_hh_l1 [12, 4] 0.500; "
        "rnn.bias_ih_l1 [12] 0.500; rnn.bias_hh_l1 [12] 0.500; head.weight [2, 4] 0.500; head.bias [2] 0.500");
  CHECK(print(*make("lstm", {{"hidden", 4}}, {3}, {2})) ==
        "rnn.weight_ih_l0 [16, 3] 0.500; rnn.weight_hh_l0 [16, 4] 0.500; rnn.bias_ih_l0 [16] 0.500; "
        "rnn.bias_hh_l0 [16] 0.500; head.weight [2, 4] 0.500; head.bias [2] 0.500");
  CHECK(make("mlp", json::object(), {8}, {1})->parameter_count() == 8 * 64 + 64 + 64 * 64 + 64 + 64 + 1);
}

TEST_CASE("model: linear computes W x + b over all values of a sample") {
  const auto model = make("linear", json::object(), {2, 3}, {2, 2});
  const auto p = bind_some(*model);
  const at::Tensor x = at::randn({3, 2, 2, 3}, at::kDouble);
  const at::Tensor prediction = predict(*model, x);
  CHECK(prediction.sizes() == at::IntArrayRef({3, 2, 2, 2}));
  for (int t = 0; t < 3; ++t) {
    for (int row = 0; row < 2; ++row) {
      const at::Tensor right = at::mv(p.at("weight"), x[t][row].flatten()) + p.at("bias");
      CHECK(at::allclose(prediction[t][row].flatten(), right, 1e-13, 1e-13));
    }
  }
}

TEST_CASE("model: mlp applies the activation between its layers and not after the last") {
  const std::map<std::string, at::Tensor (*)(const at::Tensor&)> activations = {
      {"relu", [](const at::Tensor& v) { return v.clamp_min(0); }},
      {"tanh", [](const at::Tensor& v) { return (v.exp() - (-v).exp()) / (v.exp() + (-v).exp()); }},
      {"gelu", [](const at::Tensor& v) { return v * 0.5 * (1 + at::erf(v / std::sqrt(2.0))); }},
      {"silu", [](const at::Tensor& v) { return v / (1 + (-v).exp()); }}};
  for (const auto& [name, apply] : activations) {
    CAPTURE(name);
    const auto model = make("mlp", {{"hidden", {5}}, {"activation", name}}, {3}, {2});
    const auto p = bind_some(*model);
    const at::Tensor x = at::randn({1, 4, 3}, at::kDouble);
    const at::Tensor hidden = apply(at::matmul(x, p.at("0.weight").t()) + p.at("0.bias"));
    const at::Tensor right = at::matmul(hidden, p.at("2.weight").t()) + p.at("2.bias");
    CHECK(at::allclose(predict(*model, x), right, 1e-12, 1e-12));
  }
}

TEST_CASE("model: a row's prediction does not depend on the other rows") {
  for (const ModelType& type : model_types()) {
    if (type.load) continue;  // torchscript_test.cc
    CAPTURE(type.name);
    const auto model = type.make(json::object(), {4, 3}, {1});
    bind_some(*model);
    const at::Tensor x = at::randn({1, 3, 4, 3}, at::kDouble);
    at::Tensor other = x.clone();
    other[0][1].fill_(1e6);
    const at::Tensor a = predict(*model, x), b = predict(*model, other);
    CHECK(at::equal(a[0][0], b[0][0]));
    CHECK(at::equal(a[0][2], b[0][2]));
    CHECK_FALSE(at::equal(a[0][1], b[0][1]));
  }
}

TEST_CASE("model: a shape that does not suit is refused with what would") {
  CHECK(error_of([] {
          make("mlp", {{"inputs", 5}}, {2, 3}, {1});
        }) == "3: mlp is told inputs 5, but the samples give it 6; leave inputs out to take what comes");
  CHECK(error_of([] {
          make("gru", {{"outputs", 2}}, {2, 3}, {1});
        }) == "3: gru is told outputs 2, but target and loss need 1; leave outputs out to give what is needed");
  CHECK(error_of([] { make("gru", {{"inputs", 3}, {"outputs", 2}}, {2, 3}, {2}); }) == "");
}

TEST_CASE("model: output_shape is what the parameters ask for, or the fallback") {
  CHECK(output_shape({{"outputs", 3}}, {1}) == Shape{3});
  CHECK(output_shape({{"outputs", nullptr}}, {1, 2}) == Shape{1, 2});
  CHECK(output_shape(json::object(), {1, 2}) == Shape{1, 2});
}

TEST_CASE("model: bind refuses tensors of other shapes") {
  const auto model = make("linear", json::object(), {3}, {1});
  CHECK(error_of([&] {
          model->bind({at::zeros({1, 3})});
        }) == "70: a model was bound to tensors that are not its parameters and buffers");
  CHECK(error_of([&] {
          model->bind({at::zeros({3, 1}), at::zeros({1})});
        }) == "70: a model was bound to tensors that are not its parameters and buffers");
}
