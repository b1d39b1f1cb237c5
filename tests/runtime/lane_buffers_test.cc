// Module buffers: what a lane's normalising layers keep, averaged or not, undone with a step and resumed with a run.
#include "runtime/lane_buffers.h"

#include <ATen/ATen.h>

#include <atomic>

#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"

using namespace lanewise;
using nlohmann::json;

namespace {

std::vector<Tag> rows(std::size_t n) { return std::vector<Tag>(n); }

// An mlp 3-4-2 with a norm, its parameters, and its buffers when it has some.
struct Normed {
  explicit Normed(const std::string& norm) : model(make("mlp", {{"hidden", {4}}, {"norm", norm}}, {3}, {2})) {
    for (const BufferSpec& spec : model->buffers()) buffers.push_back(at::full(spec.shape, spec.initial, at::kDouble));
    named = bind_some(*model, 1, buffers);
  }
  at::Tensor forward(const at::Tensor& x, const std::vector<Tag>& tags, bool training) const {
    at::Tensor state;
    return model->forward(x, state, {.rows = tags, .training = training});
  }
  // The prediction for rows x [n, 3] normalised by these statistics.
  at::Tensor by(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& variance) const {
    const at::Tensor h = at::matmul(x, named.at("0.weight").t()) + named.at("0.bias");
    const at::Tensor normed = (h - mean) / at::sqrt(variance + 1e-5) * named.at("1.weight") + named.at("1.bias");
    return at::matmul(at::relu(normed), named.at("3.weight").t()) + named.at("3.bias");
  }
  at::Tensor hidden(const at::Tensor& x) const { return at::matmul(x, named.at("0.weight").t()) + named.at("0.bias"); }

  std::unique_ptr<Model> model;
  std::map<std::string, at::Tensor> named;
  std::vector<at::Tensor> buffers;
};

Topology normed(const std::string& run) {
  Topology t;
  t.streams = 6, t.lanes = 3;
  t.model = R"("type": "mlp", "hidden": [5, 4], "norm": "batch", "dropout": 0.2)";
  t.optimizer = R"("name": "adamw", "lr": 0.01)";
  t.run = run + R"(, "seed": 3)";
  return t;
}

}  // namespace

TEST_CASE("buffers: a batch norm goes by the rows of its batch in training, and by what it has kept afterwards") {
  const Normed mlp("batch");
  const at::Tensor x = at::randn({5, 3}, at::kDouble), h = mlp.hidden(x);
  const at::Tensor mean = h.sum(0) / 5, squares = (h - mean).pow(2).sum(0);
  CHECK(at::allclose(mlp.forward(x.unsqueeze(0), rows(5), true)[0], mlp.by(x, mean, squares / 5), 1e-9, 1e-9));
  CHECK(at::allclose(mlp.buffers[0], 0.1 * mean, 1e-12, 1e-12));
  CHECK(at::allclose(mlp.buffers[1], 0.9 + 0.1 * squares / 4, 1e-12, 1e-12));
  const std::vector<at::Tensor> kept = {mlp.buffers[0].clone(), mlp.buffers[1].clone()};
  CHECK(at::allclose(mlp.forward(x.unsqueeze(0), rows(5), false)[0], mlp.by(x, kept[0], kept[1]), 1e-9, 1e-9));
  CHECK(at::equal(mlp.buffers[0], kept[0]));
  CHECK(at::equal(mlp.buffers[1], kept[1]));
}

TEST_CASE("buffers: fillers are no part of the statistics, and one row alone goes by what was kept") {
  const Normed mlp("batch"), without("batch");
  const at::Tensor x = at::randn({4, 3}, at::kDouble);
  std::vector<Tag> tags = rows(4);
  tags[1].filler = true;
  const at::Tensor real = at::index_select(x, 0, at::tensor({0, 2, 3}));
  const at::Tensor all = mlp.forward(x.unsqueeze(0), tags, true)[0];
  const at::Tensor three = without.forward(real.unsqueeze(0), rows(3), true)[0];
  CHECK(at::allclose(at::index_select(all, 0, at::tensor({0, 2, 3})), three, 1e-12, 1e-12));
  CHECK(at::equal(mlp.buffers[0], without.buffers[0]));
  CHECK(at::equal(mlp.buffers[1], without.buffers[1]));

  tags[0].filler = tags[2].filler = true;
  const at::Tensor mean = mlp.buffers[0].clone(), variance = mlp.buffers[1].clone();
  CHECK(at::allclose(mlp.forward(x.unsqueeze(0), tags, true)[0], mlp.by(x, mean, variance), 1e-9, 1e-9));
  CHECK(at::equal(mlp.buffers[0], mean));
}

TEST_CASE("buffers: a layer norm needs none, and no other row") {
  const Normed mlp("layer");
  CHECK(mlp.model->buffers().empty());
  const at::Tensor x = at::randn({5, 3}, at::kDouble), h = mlp.hidden(x);
  const at::Tensor mean = h.sum(1, true) / 4, variance = (h - mean).pow(2).sum(1, true) / 4;
  CHECK(at::allclose(mlp.forward(x.unsqueeze(0), rows(5), true)[0], mlp.by(x, mean, variance), 1e-9, 1e-9));
}

TEST_CASE("buffers: a step that is applied keeps them, averaged if asked; one that is not takes them back") {
  const std::vector<BufferSpec> specs = {{"a", {2}, 0, 1}, {"b", {1}, 1, 2}};
  for (const bool average : {false, true}) {
    CAPTURE(average);
    LaneBuffers buffers(specs, 3, {0, 3}, at::kFloat, average);
    for (int lane = 0; lane < 3; ++lane) buffers.of(lane)[0].fill_(lane);
    buffers.commit([](const at::Tensor& rows) { return rows; });
    CHECK(buffers.of(2)[0][1].item<float>() == (average ? 1 : 2));
    CHECK(buffers.mean(0)[0].item<float>() == 1);
    CHECK(buffers.mean(1)[0].item<float>() == 1);
    buffers.of(1)[1].fill_(9);
    buffers.roll_back();
    CHECK(buffers.of(1)[1].item<float>() == 1);
    CHECK(buffers.values().sizes() == at::IntArrayRef({3, 3}));
  }
  LaneBuffers other(specs, 2, {0, 2}, at::kFloat, false);
  CHECK(error_of([&] {
          other.restore(at::zeros({3, 3}));
        }) == "6: the checkpoint's buffers are [3, 3] (lanes, values), and here [2, 3]");
}

TEST_CASE("buffers: a model that has some is refused until it is said what they are to be") {
  const auto refused = [](const std::string& text) { return error_of([&] { plans_of(text); }); };
  const std::string error = refused(normed(R"("steps": 5)").text());
  INFO(error);
  CHECK(error.find("model \"net\" keeps statistics of batches of 2 rows, which are noise; if that is meant, say whose: "
                   "run.buffers \"local\"") != std::string::npos);
  Topology single = normed(R"("steps": 5, "buffers": "local")");
  single.lanes = 6;
  const std::string alone = refused(single.text());
  INFO(alone);
  CHECK(alone.find("model \"net\" normalises over the rows of a batch, and there is one") != std::string::npos);
}

TEST_CASE("buffers: they stand in the state dict behind their layer's parameters, and count to the digest") {
  const Ran ran = train(normed(R"("steps": 5, "buffers": "average")").text());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  std::string names;
  const std::string& bytes = ran.files.at("weights.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) names += name + " ";
  CHECK(names.find("1.weight 1.bias 1.running_mean 1.running_var 3.weight") != std::string::npos);
  CHECK(at::all(ran.weights.at("1.running_mean") != 0).item<bool>());
  const Ran other = train(normed(R"("steps": 5, "buffers": "local")").text());
  CHECK(other.report["weights_sha256"] != ran.report["weights_sha256"]);
  CHECK(other.metrics == ran.metrics);  // no training forward looks at them
}

TEST_CASE("buffers: a stopped and resumed run keeps each lane's, and evaluates with them") {
  for (const char* const mode : {"local", "average"}) {
    CAPTURE(mode);
    Topology t = normed(fmt::format(R"("steps": 30, "buffers": "{}", "checkpoint": {{ "every": 4 }})", mode));
    t.top = R"(, "evaluate": { "every": 10, "steps": 6 })";
    const Ran whole = train(t.text());
    REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
    const TemporaryFolder folder;
    std::atomic<int> asked = 0;
    REQUIRE(train_in(folder.path(), plans_of(t.text()), false, [&] { return ++asked > 60 ? 2 : 0; }).exit() == 11);
    const Ran resumed = train_in(folder.path(), plans_of(t.text()), true);
    REQUIRE_MESSAGE(resumed.exit() == 0, resumed.reason());
    for (const char* const file : {"metrics.jsonl", "evaluations.jsonl", "weights.safetensors"}) {
      CHECK(whole.files.at(file) == resumed.files.at(file));
    }
  }
}

TEST_CASE("buffers: a skipped step leaves no trace in them") {
  const auto script = [](const std::vector<int>& rounds, int bad) {
    scripts().clear();
    for (int k = 0; k < 6; ++k) {
      for (const int r : rounds) {
        Sample sample{
            .x = at::sin(at::arange(3, at::kFloat) + 7 * r + k), .y = at::full({1}, 0.1 * k), .known = {}, .tag = {}};
        if (k == 3 && r == bad) sample.y.fill_(NAN);
        scripts()[fmt::format("gen{}", k)].push_back(std::move(sample));
      }
    }
  };
  Topology t = normed(R"("steps": 100, "buffers": "local", "non_finite": "skip")");
  t.source = R"("type": "script")";
  t.model = R"("type": "mlp", "hidden": [5], "norm": "batch")";
  script({0, 1, 2, 3}, 2);
  const Ran bad = train(t.text());
  script({0, 1, 3}, -1);
  const Ran good = train(t.text());
  REQUIRE_MESSAGE(bad.exit() == 0, bad.reason());
  CHECK(bad.report["skipped"]["steps"] == 1);
  CHECK(bad.report["weights_sha256"] == good.report["weights_sha256"]);
}
