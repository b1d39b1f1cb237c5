#include "runtime/recurrent.h"

#include <fmt/format.h>

#include "runtime/tensors.h"
#include "tests/check.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"

using namespace lanewise;
using nlohmann::json;

namespace {

using Leaves = std::map<std::string, at::Tensor>;

constexpr int kHidden = 5;

// The library's recurrent layers and our head over a sequence x [time, n, features] from `state`, rows as ours:
// h after each time step [time, n, hidden] and the new state.
std::pair<at::Tensor, at::Tensor> library(const std::string& type, int layers, const Leaves& leaves,
                                          const at::Tensor& x, const at::Tensor& state, int hidden) {
  std::vector<at::Tensor> weights;
  for (int l = 0; l < layers; ++l) {
    for (const char* part : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
      weights.push_back(leaves.at(fmt::format("rnn.{}_l{}", part, l)));
    }
  }
  const auto parts = type == "lstm" ? 2 : 1;
  // [n, layers, parts, hidden] -> [parts, layers, n, hidden]
  const at::Tensor split = state.view({x.size(1), layers, parts, hidden}).permute({2, 1, 0, 3});
  const auto as_row = [&](const at::Tensor& states) { return states.permute({2, 1, 0, 3}).flatten(1); };
  if (type == "gru") {
    const auto [all, last] = at::gru(x, split[0], weights, true, layers, 0, true, false, false);
    return {all, as_row(last.unsqueeze(0))};
  }
  const auto [all, h, c] = at::lstm(x, {split[0], split[1]}, weights, true, layers, 0, true, false, false);
  return {all, as_row(at::stack({h, c}))};
}

// One time step of one layer, written as the formulas are: x [n, features], state [n, parts * hidden], changed.
at::Tensor plain_step(const std::string& type, const Leaves& leaves, const at::Tensor& x, at::Tensor& state) {
  const at::Tensor h = state.narrow(1, 0, kHidden);
  const auto part = [&](const char* from, const at::Tensor& value, int gate) {
    const at::Tensor weight = leaves.at(fmt::format("rnn.weight_{}_l0", from)).narrow(0, gate * kHidden, kHidden);
    const at::Tensor bias = leaves.at(fmt::format("rnn.bias_{}_l0", from)).narrow(0, gate * kHidden, kHidden);
    return at::matmul(value, weight.t()) + bias;
  };
  const auto gate = [&](int number) { return part("ih", x, number) + part("hh", h, number); };
  if (type == "gru") {
    const at::Tensor r = at::sigmoid(gate(0)), z = at::sigmoid(gate(1));
    state = (1 - z) * at::tanh(part("ih", x, 2) + r * part("hh", h, 2)) + z * h;
    return state;
  }
  const at::Tensor c =
      at::sigmoid(gate(1)) * state.narrow(1, kHidden, kHidden) + at::sigmoid(gate(0)) * at::tanh(gate(2));
  const at::Tensor next = at::sigmoid(gate(3)) * at::tanh(c);
  state = at::cat({next, c}, 1);
  return next;
}

}  // namespace

TEST_CASE("recurrent: gru and lstm equal the library's from any state, forward and backward, by either kernel") {
  struct Case {
    const char *type, *kernel;
    at::ScalarType dtype;
    int hidden, layers, times, n;
  };
  std::vector<Case> cases;
  for (const char* const type : {"gru", "lstm"}) {
    for (const char* const kernel : {"library", "native"}) {
      for (const int layers : {1, 2}) {
        for (const int times : {1, 6}) cases.push_back({type, kernel, at::kDouble, kHidden, layers, times, 4});
      }
    }
    // Blocks of the loops, and rows, with ends of all sizes.
    for (const int hidden : {16, 17, 40}) {
      for (const int n : {1, 3, 15}) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
          cases.push_back({type, "native", dtype, hidden, 2, 3, n});
      }
    }
  }
  const int k = 3;
  for (const Case& c : cases) {
    const auto [type, kernel, dtype, hidden, layers, times, n] = c;
    CAPTURE(type);
    CAPTURE(kernel);
    CAPTURE(hidden);
    CAPTURE(layers);
    CAPTURE(times);
    CAPTURE(n);
    const double near = dtype == at::kDouble ? 1e-12 : 2e-5;
    const auto random = [dtype = dtype](const Shape& shape) { return at::randn(shape, at::kDouble).to(dtype); };
    const auto model = make(type, {{"hidden", hidden}, {"layers", layers}, {"kernel", kernel}}, {times, 3}, {2, 1});
    CHECK(model->state_size() == layers * hidden * (std::string(type) == "lstm" ? 2 : 1));
    Leaves p = bind_some(*model, 1, {}, dtype);
    const at::Tensor x = random({k, n, times, 3}).requires_grad_();
    const at::Tensor before = random({n, model->state_size()}).requires_grad_();
    const at::Tensor counts = random({k, n, 2, 1}), state_counts = random(shape_of(before));
    const auto backward = [&](const at::Tensor& prediction, const at::Tensor& state) {
      ((prediction * counts).sum() + (state * state_counts).sum()).backward();
      Leaves gradients = take_gradients(p);
      gradients["x"] = x.grad().clone();
      gradients["state"] = before.grad().clone();
      x.grad().zero_();
      before.grad().zero_();
      return gradients;
    };

    const auto [all, last] = library(type, layers, p, x.transpose(1, 2).reshape({k * times, n, 3}), before, hidden);
    const at::Tensor after_samples = all.view({k, times, n, hidden}).select(1, times - 1);
    const at::Tensor right = at::linear(after_samples, p.at("head.weight"), p.at("head.bias")).view({k, n, 2, 1});
    const Leaves right_gradients = backward(right, last);

    at::Tensor state = before;
    const at::Tensor prediction = model->forward(x, state, {});
    CHECK(prediction.sizes() == right.sizes());
    CHECK(distance(prediction, right) <= near);
    CHECK(distance(state, last) <= near);
    for (const auto& [name, gradient] : backward(prediction, state)) {
      CAPTURE(name);
      CHECK(distance(gradient, right_gradients.at(name)) <= near);
    }
  }
}

TEST_CASE("recurrent: what a device may record is done by operations of the library alone") {
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto native = make(type, {{"hidden", 64}, {"kernel", "native"}}, {9, 3}, {1}),
               library = make(type, {{"hidden", 64}, {"kernel", "library"}}, {9, 3}, {1});
    bind_some(*native, 1, {}, at::kFloat);
    bind_some(*library, 1, {}, at::kFloat);
    const at::Tensor x = at::randn({1, 4, 9, 3});
    const auto predicted = [&](const Model& model, bool recorded) {
      at::Tensor state = at::zeros({4, model.state_size()});
      return model.forward(x, state, {.recorded = recorded});
    };
    CHECK(at::equal(predicted(*native, true), predicted(*library, false)));
    CHECK_FALSE(at::equal(predicted(*native, false), predicted(*library, false)));
  }
}

TEST_CASE("recurrent: a window of four steps has the gradients of one unrolled graph of plain operations") {
  const int k = 4, n = 2;
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto model = make(type, {{"hidden", kHidden}}, {3}, {1});
    Leaves p = bind_some(*model);
    const at::Tensor x = at::randn({k, n, 3}, at::kDouble), y = at::randn({k, n, 1}, at::kDouble);
    const at::Tensor before = at::randn({n, model->state_size()}, at::kDouble);
    at::Tensor state = before, plain_state = before, loss = at::zeros({}, at::kDouble);
    for (int t = 0; t < k; ++t) {
      const at::Tensor h = plain_step(type, p, x[t], plain_state);
      loss = loss + (at::matmul(h, p.at("head.weight").t()) + p.at("head.bias") - y[t]).square().sum();
    }
    loss.backward();
    const Leaves right = take_gradients(p);
    (model->forward(x, state, {}) - y).square().sum().backward();
    for (const auto& [name, gradient] : take_gradients(p)) {
      CAPTURE(name);
      CHECK(distance(gradient, right.at(name)) <= 1e-12);
    }
    CHECK(distance(state, plain_state) <= 1e-12);
  }
}

TEST_CASE("recurrent: one call with k steps computes what k calls with one step do") {
  for (const std::string type : {"gru", "lstm"}) {
    for (const Shape& sample : {Shape{3}, Shape{4, 3}}) {
      CAPTURE(type);
      CAPTURE(sample.size());
      const auto model = make(type, {{"hidden", kHidden}, {"layers", 2}}, sample, {1});
      bind_some(*model);
      Shape shape = {5, 3};
      shape.insert(shape.end(), sample.begin(), sample.end());
      const at::Tensor x = at::randn(shape, at::kDouble);
      at::Tensor at_once = at::randn({3, model->state_size()}, at::kDouble), one_by_one = at_once;
      const at::Tensor prediction = model->forward(x, at_once, {});
      for (int t = 0; t < 5; ++t) {
        CHECK(distance(model->forward(x.narrow(0, t, 1), one_by_one, {}), prediction.narrow(0, t, 1)) <= 1e-12);
      }
      CHECK(distance(one_by_one, at_once) <= 1e-12);
    }
  }
}

TEST_CASE("recurrent: no row touches another row's prediction or state") {
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto model = make(type, {{"hidden", kHidden}, {"layers", 2}}, {4, 3}, {1});
    bind_some(*model);
    const at::Tensor x = at::randn({4, 3, 4, 3}, at::kDouble), other_x = x.clone();
    at::Tensor state = at::randn({3, model->state_size()}, at::kDouble), other_state = state.clone();
    other_x[2][1].fill_(1e6);  // the middle row, from the third step on
    other_state[1].add_(1);
    const at::Tensor a = model->forward(x, state, {}), b = model->forward(other_x, other_state, {});
    for (const int row : {0, 2}) {
      CHECK(at::equal(a.select(1, row), b.select(1, row)));
      CHECK(at::equal(state[row], other_state[row]));
    }
    CHECK_FALSE(at::equal(a.select(1, 1), b.select(1, 1)));
    CHECK_FALSE(at::equal(state[1], other_state[1]));
  }
}

TEST_CASE("recurrent: a sample without a time axis is one step") {
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto flat = make(type, {{"hidden", 4}}, {3}, {1}), timed = make(type, {{"hidden", 4}}, {1, 3}, {1});
    bind_some(*flat);
    bind_some(*timed);
    const at::Tensor x = at::randn({2, 5, 3}, at::kDouble);
    CHECK(at::equal(predict(*flat, x), predict(*timed, x.unsqueeze(2))));
  }
}

TEST_CASE("recurrent: a backward with weights changed since the forward raises") {
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto model = make(type, {{"hidden", 4}}, {3}, {1});
    for (const char* name : {"rnn.weight_ih_l0", "rnn.weight_hh_l0"}) {
      CAPTURE(name);
      const Leaves p = bind_some(*model);
      // x asks for its gradient, so that both weights are needed.
      const at::Tensor before = predict(*model, at::ones({1, 2, 3}, at::kDouble).requires_grad_()).sum();
      p.at(name).unsafeGetTensorImpl()->bump_version();
      CHECK_THROWS_WITH_AS(before.backward(), doctest::Contains("modified by an inplace operation"), c10::Error);
    }
  }
}

TEST_CASE("recurrent: a sample of another rank is refused with what would suit") {
  for (const std::string type : {"gru", "lstm"}) {
    CHECK(error_of([&] {
            make(type, json::object(), {2, 3, 4}, {1});
          }) == "3: " + type + " takes samples x [time, features] or [features], not [2, 3, 4]");
  }
}
