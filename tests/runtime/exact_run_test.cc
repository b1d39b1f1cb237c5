// The whole product against an independent plain loop: sixteen streams on eight lanes train what one batch of sixteen
// trains.
#include "nodes/node_type.h"
#include "runtime/replica.h"
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/plain_loop.h"

using namespace lanewise;

namespace {

constexpr int kSteps = 200, kStreams = 16;

// A node of another type with something done after each firing.
class Spoiled final : public Node {
 public:
  Spoiled(std::unique_ptr<Node> node, std::function<void()> spoil) : node_(std::move(node)), spoil_(std::move(spoil)) {}
  void fire(Firing& firing) override {
    node_->fire(firing);
    spoil_();
  }
  Packet initial(std::size_t port) override { return node_->initial(port); }

 private:
  const std::unique_ptr<Node> node_;
  const std::function<void()> spoil_;
};

// `compute` with the usual mistakes: a loss that is detached before backward reaches no parameter; dividing by the
// lane's own rows makes a mean of means.
Registry spoiled_registry() {
  Registry registry = test_registry();
  const NodeType right = *registry.find_node("compute");
  const auto spoil = [&](const std::string& name, auto how) {
    NodeType wrong = right;
    wrong.name = name;
    wrong.make = [right, how](const NodeContext& context) -> std::unique_ptr<Node> {
      auto& replicas = context.services.get<Replicas>();
      const int lane = context.node.instance;
      return std::make_unique<Spoiled>(right.make(context),
                                       [&replicas, lane, how] { how(replicas.layout(), replicas.bucket(lane)); });
    };
    registry.nodes.push_back(wrong);
  };
  spoil("compute_detached",
        [](const BucketLayout& layout, at::Tensor& bucket) { bucket.narrow(0, 0, layout.parameters).zero_(); });
  spoil("compute_mean_of_means", [](const BucketLayout& layout, at::Tensor& bucket) {
    const std::int64_t first = layout.loss_at(0);
    double n = 0;
    for (int s = 0; s < layout.streams; ++s) n += bucket[layout.weight_at(s)].item<double>();
    if (n == 0) return;
    bucket.narrow(0, 0, first).div_(n);
    for (int s = 0; s < layout.streams; ++s) {
      bucket[layout.loss_at(s)] /= n;
      bucket[layout.weight_at(s)] /= n;
    }
  });
  return registry;
}

struct Case {
  std::string model, dtype, optimizer;
};

Topology topology(const Case& c) {
  Topology t;
  t.last = "keep";
  if (c.model == "gru") {
    t.chain =
        R"( { "id": "win", "repeat": 16, "type": "window", "in": [ { "from": "gen", "take": 1 } ], "params": { "length": 8 } },
    { "id": "keep", "repeat": 16, "type": "capture", "in": [ { "from": "win", "take": 1 } ] },)";
    t.model = R"("type": "gru", "hidden": 12)";
  } else {
    t.chain = R"( { "id": "keep", "repeat": 16, "type": "capture", "in": [ { "from": "gen", "take": 1 } ] },)";
  }
  t.optimizer = c.optimizer == "sgd" ? R"("name": "sgd", "lr": 0.01, "momentum": 0.9)"
                                     : R"("name": "adamw", "lr": 0.01, "eps": 1e-6, "weight_decay": 0.01)";
  t.run = fmt::format(R"("steps": {}, "seed": 7, "dtype": "{}")", kSteps, c.dtype);
  return t;
}

PlainLoop plain(const Case& c, const std::string& text) {
  PlainLoop loop;
  loop.model = c.model;
  loop.params = c.model == "gru" ? nlohmann::json{{"hidden", 12}, {"layers", 1}}
                                 : nlohmann::json{{"hidden", {16}}, {"activation", "tanh"}};
  loop.weights =
      train(text, {"run.steps=1", "opt.lr=1e-300"}).weights;  // the step underflows: these are the initial weights
  loop.optimizer = c.optimizer;
  loop.lr = 0.01;
  loop.momentum = c.optimizer == "sgd" ? 0.9 : 0;
  loop.weight_decay = c.optimizer == "sgd" ? 0 : 0.01;
  return loop;
}

std::vector<std::vector<PlainLoop::Row>> captured_rows() {
  std::vector<std::vector<PlainLoop::Row>> rows(kSteps);
  for (int s = 0; s < kStreams; ++s) {
    const std::vector<Sample>& samples = captured().samples.at(fmt::format("gen{}", s));
    REQUIRE(samples.size() >= kSteps);
    for (int k = 0; k < kSteps; ++k) rows[k].push_back({samples[k].x, samples[k].y, samples[k].tag.weight});
  }
  return rows;
}

TrainedRun as_run(const Ran& ran) {
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  return {ran.losses(), ran.weights};
}

Ran train_fresh(const std::string& text, const std::vector<std::string>& sets = {}) {
  captured().samples.clear();
  return train(text, sets, spoiled_registry());
}

}  // namespace

TEST_CASE("a run: eight lanes of two streams train exactly what one plain batch of sixteen trains") {
  for (const Case& c : {Case{"mlp", "float64", "sgd"}, Case{"mlp", "float64", "adamw"}, Case{"gru", "float64", "sgd"},
                        Case{"gru", "float64", "adamw"}, Case{"mlp", "float32", "sgd"}, Case{"mlp", "float32", "adamw"},
                        Case{"gru", "float32", "sgd"}, Case{"gru", "float32", "adamw"}}) {
    CAPTURE(c.model + " " + c.dtype + " " + c.optimizer);
    const std::string text = topology(c).text();
    const PlainLoop loop = plain(c, text);
    const TrainedRun ours = as_run(train_fresh(text));
    const Verdict verdict = compare_runs(ours, loop.run(captured_rows()), c.dtype == "float64" ? 1e-10 : 1e-5);
    CAPTURE(verdict.text());
    CHECK(verdict.word == "equal");
    MESSAGE(c.model << " " << c.dtype << " " << c.optimizer << ": " << verdict.text());
  }
}

TEST_CASE("a run: rows of unequal weight in unequal lanes count once each, and the usual mistakes are seen") {
  const Case c{"mlp", "float64", "sgd"};
  Topology t = topology(c);
  // Weights by stream: some lanes count 2, some 1.25, some 0.
  t.source =
      R"("type": "ar1", "params": { "features": 6 }, "each": { "weight": [1, 1, 1, 0.25, 0, 0, 1, 0, 0.5, 0.5, 1, 1, 0.1, 0, 1, 1] })";
  const std::string text = t.text();
  const PlainLoop loop = plain(c, text);
  const TrainedRun ours = as_run(train_fresh(text));
  const TrainedRun reference = loop.run(captured_rows());
  CHECK(compare_runs(ours, reference, 1e-10).word == "equal");

  const TrainedRun detached =
      as_run(train_fresh(text, {R"(swap lane={"type": "compute_detached", "params": {"model": "net"}})"}));
  CHECK(compare_runs(detached, reference, 1e-10).word == "different");
  const TrainedRun means =
      as_run(train_fresh(text, {R"(swap lane={"type": "compute_mean_of_means", "params": {"model": "net"}})"}));
  CHECK(compare_runs(means, reference, 1e-10).word == "different");
}

TEST_CASE(
    "a run: the same bits for any number of threads, any capacity, shared and per-device weights, and every time") {
  for (const std::string dtype : {"float32", "float64"}) {
    Topology t = topology({"mlp", dtype, "adamw"});
    const Ran first = train_fresh(t.text(), {"run.threads=1"});
    REQUIRE_MESSAGE(first.exit() == 0, first.reason());
    for (const std::vector<std::string>& sets :
         std::vector<std::vector<std::string>>{{"run.threads=1"},
                                               {"run.threads=2"},
                                               {"run.threads=4"},
                                               {"run.threads=8"},
                                               {"run.weights=per_device"},
                                               {"run.weights=per_device", "run.threads=8"}}) {
      CAPTURE(sets.front());
      const Ran again = train_fresh(t.text(), sets);
      CHECK(again.metrics == first.metrics);
      CHECK(again.report["weights_sha256"] == first.report["weights_sha256"]);
    }
    t.capacity = 1;
    CHECK(train_fresh(t.text()).metrics == first.metrics);
    CHECK(first.report["weights_sha256"].get<std::string>().size() == 64);
  }
}

TEST_CASE("a run: another seed trains another model, and adding a lane changes no stream") {
  Topology t = topology({"mlp", "float32", "sgd"});
  const Ran first = train_fresh(t.text());
  const std::map<std::string, std::vector<Sample>> sixteen = captured().samples;
  CHECK(train_fresh(t.text(), {"run.seed=8"}).metrics != first.metrics);

  t.streams = 18;
  t.lanes = 9;
  t.chain = R"( { "id": "keep", "repeat": 18, "type": "capture", "in": [ { "from": "gen", "take": 1 } ] },)";
  train_fresh(t.text());
  for (const auto& [stream, samples] : sixteen) {
    const std::vector<Sample>& now = captured().samples.at(stream);
    bool same = true;
    for (int k = 0; k < kSteps; ++k)
      same = same && at::equal(samples[k].x, now[k].x) && at::equal(samples[k].y, now[k].y);
    CHECK_MESSAGE(same, stream);
  }
}
