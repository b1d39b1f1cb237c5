#include "runtime/dropout.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "tests/check.h"
#include "tests/runtime/models.h"
#include "tests/runtime/tags.h"

using namespace lanewise;
using nlohmann::json;

namespace {

Tag row(int stream, std::uint64_t seq) { return {.stream = stream, .seq = seq}; }

at::Tensor mask_of(const Dropout& dropout, int stream, std::uint64_t seq, int layer, double p = 0.5) {
  const Tag tag = row(stream, seq);
  return dropout.mask({&tag, 1}, layer, {100}, p, at::kFloat);
}

std::string problems_of(const std::string& type, const json& params) {
  std::vector<Problem> problems;
  Fields fields({&params, type, [](const std::string&) { return Place{}; }, [](const std::string&) { return ""; }},
                problems);
  model_type(type).fields(fields);
  std::string text;
  for (const Problem& problem : problems) text += problem.rule + "\n";
  return text;
}

}  // namespace

TEST_CASE("dropout: seed, stream, seq and layer each give another mask, and the same one again") {
  const Dropout dropout(7, stream_table({"a", "b"}));
  const at::Tensor first = mask_of(dropout, 0, 3, 1);
  CHECK(at::equal(mask_of(dropout, 0, 3, 1), first));
  CHECK(at::equal(mask_of(Dropout(7, stream_table({"a", "b"})), 0, 3, 1), first));
  CHECK_FALSE(at::equal(mask_of(Dropout(8, stream_table({"a", "b"})), 0, 3, 1), first));
  CHECK_FALSE(at::equal(mask_of(dropout, 1, 3, 1), first));
  CHECK_FALSE(at::equal(mask_of(dropout, 0, 4, 1), first));
  CHECK_FALSE(at::equal(mask_of(dropout, 0, 3, 0), first));
}

TEST_CASE("dropout: no two of many masks share a run of forty elements") {
  const Dropout dropout(7, stream_table({"a", "b"}));
  std::set<std::vector<float>> runs;
  std::size_t expected = 0;
  for (int stream = 0; stream < 2; ++stream) {
    for (const std::uint64_t seq : {0, 1, 2, 3, 65535, 65536, 1 << 30}) {
      for (int layer = 0; layer < 5; ++layer) {
        const at::Tensor mask = mask_of(dropout, stream, seq, layer);
        const float* values = mask.const_data_ptr<float>();
        for (int i = 0; i + 40 <= 100; ++i) {
          runs.insert({values + i, values + i + 40});
          ++expected;
        }
      }
    }
  }
  CHECK(runs.size() == expected);
}

TEST_CASE("dropout: an element is 0 with probability p, else 1 / (1 - p)") {
  const Dropout dropout(1, stream_table({"a"}));
  const std::vector<Tag> rows = {row(0, 0), row(0, 1), row(0, 2), row(0, 3)};
  const std::int64_t count = 4 * 101 * 99;  // an odd number of elements a row
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    CAPTURE(p);
    const at::Tensor mask = dropout.mask(rows, 0, {101, 99}, p, at::kDouble);
    CHECK(mask.sizes() == at::IntArrayRef({4, 101, 99}));
    CHECK(((mask == 0) | (mask == 1 / (1 - p))).all().item<bool>());
    // An element has mean 1 and variance p / (1 - p): five standard deviations of the mean of `count` of them.
    CHECK(std::abs(mask.mean().item<double>() - 1) <= 5 * std::sqrt(p / (1 - p) / static_cast<double>(count)));
    CHECK(at::equal(dropout.mask(rows, 0, {101, 99}, p, at::kFloat), mask.to(at::kFloat)));
  }
}

TEST_CASE("dropout: other streams, the order of rows and their number change no mask") {
  const Dropout two(7, stream_table({"b", "c"})), three(7, stream_table({"a", "b", "c"}));
  const std::vector<Tag> rows = {row(0, 5), row(1, 5), row(0, 6)}, moved = {row(2, 5), row(1, 6), row(0, 9), row(1, 5)};
  const at::Tensor a = two.mask(rows, 2, {50}, 0.3, at::kDouble), b = three.mask(moved, 2, {50}, 0.3, at::kDouble);
  CHECK(at::equal(a[0], b[3]));
  CHECK(at::equal(a[1], b[0]));
  CHECK(at::equal(a[2], b[1]));
}

TEST_CASE("dropout: mlp applies a mask after each hidden activation") {
  const auto model = make("mlp", {{"hidden", {6, 4}}, {"activation", "tanh"}, {"dropout", 0.4}}, {3}, {2});
  const auto p = bind_some(*model);
  const Dropout dropout(7, stream_table({"a", "b"}));
  const std::vector<Tag> rows = tags(3, 2);
  const at::Tensor x = at::randn({3, 2, 3}, at::kDouble);
  const auto linear = [&](const at::Tensor& h, int layer) {
    return at::linear(h, p.at(fmt::format("{}.weight", layer)), p.at(fmt::format("{}.bias", layer)));
  };
  at::Tensor h = at::tanh(linear(x.flatten(0, 1), 0)) * dropout.mask(rows, 0, {6}, 0.4, at::kDouble);
  h = at::tanh(linear(h, 2)) * dropout.mask(rows, 1, {4}, 0.4, at::kDouble);
  at::Tensor state;
  CHECK(distance(model->forward(x, state, {&dropout, rows}), linear(h, 4).view({3, 2, 2})) <= 1e-12);
  CHECK(distance(predict(*model, x), linear(h, 4).view({3, 2, 2})) > 1e-3);  // none without a Dropout
}

TEST_CASE("dropout: gru and lstm apply a mask between layers") {
  const int k = 2, n = 3, times = 4, hidden = 5;
  const Dropout dropout(7, stream_table({"a", "b", "c"}));
  const std::vector<Tag> rows = tags(k, n);
  for (const std::string type : {"gru", "lstm"}) {
    CAPTURE(type);
    const auto model = make(type, {{"hidden", hidden}, {"layers", 3}, {"dropout", 0.4}}, {times, 3}, {1});
    const auto p = bind_some(*model);
    const at::Tensor x = at::randn({k, n, times, 3}, at::kDouble);
    at::Tensor sequence = x.transpose(1, 2).reshape({k * times, n, 3});
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<at::Tensor> weights;
      for (const char* part : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
        weights.push_back(p.at(fmt::format("rnn.{}_l{}", part, layer)));
      }
      const at::Tensor zero = at::zeros({1, n, hidden}, at::kDouble);
      sequence = type == "gru" ? std::get<0>(at::gru(sequence, zero, weights, true, 1, 0, true, false, false))
                               : std::get<0>(at::lstm(sequence, {zero, zero}, weights, true, 1, 0, true, false, false));
      if (layer == 2) break;
      const at::Tensor mask = dropout.mask(rows, layer, {times, hidden}, 0.4, at::kDouble), masked = sequence.clone();
      for (int t = 0; t < k * times; ++t) {
        for (int i = 0; i < n; ++i) masked[t][i].mul_(mask[t / times * n + i][t % times]);
      }
      sequence = masked;
    }
    const at::Tensor last = sequence.view({k, times, n, hidden}).select(1, times - 1);
    const at::Tensor right = at::linear(last, p.at("head.weight"), p.at("head.bias"));
    at::Tensor state = at::zeros({n, model->state_size()}, at::kDouble);
    CHECK(distance(model->forward(x, state, {&dropout, rows}), right) <= 1e-12);
    CHECK(distance(predict(*model, x), right) > 1e-3);  // none without a Dropout
  }
}

TEST_CASE("dropout: one call with k steps drops what k calls with one step do") {
  const Dropout dropout(7, stream_table({"a", "b"}));
  const auto model = make("gru", {{"hidden", 5}, {"layers", 2}, {"dropout", 0.5}}, {3}, {1});
  bind_some(*model);
  const std::vector<Tag> rows = tags(4, 2);
  const at::Tensor x = at::randn({4, 2, 3}, at::kDouble);
  at::Tensor at_once = at::zeros({2, model->state_size()}, at::kDouble), one_by_one = at_once;
  const at::Tensor prediction = model->forward(x, at_once, {&dropout, rows});
  for (int t = 0; t < 4; ++t) {
    const Pass pass = {&dropout, std::span(rows).subspan(2 * t, 2)};
    CHECK(distance(model->forward(x.narrow(0, t, 1), one_by_one, pass), prediction.narrow(0, t, 1)) <= 1e-12);
  }
  CHECK(distance(one_by_one, at_once) <= 1e-12);
}

TEST_CASE("dropout: what it cannot act on is refused") {
  for (const std::string type : {"gru", "lstm"}) {
    CHECK(problems_of(type, {{"dropout", 0.1}}) ==
          type + ": dropout acts between recurrent layers and there is one; give layers 2 or more, or leave it out\n");
    CHECK(problems_of(type, {{"dropout", 0.1}, {"layers", 2}}) == "");
    CHECK(problems_of(type, {{"dropout", 0}}) == "");
  }
  CHECK(problems_of("mlp", {{"dropout", 0.1}, {"hidden", json::array()}}) ==
        "mlp: dropout acts on hidden layers and there are none; give hidden a width, or leave it out\n");
  CHECK(problems_of("mlp", {{"dropout", 1}}) == "mlp: \"dropout\" must be at least 0 and below 1, not 1\n");
}
