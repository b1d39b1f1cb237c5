// Recurrent state belongs to its stream: a model h <- h + x counts exactly what its stream has given.
#include <atomic>
#include <random>

#include "nodes/per_sample.h"
#include "runtime/checkpoint_store.h"
#include "runtime/model.h"
#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

// h <- h + x, prediction h + w with a w that stays zero.
class Adder final : public Model {
 public:
  struct Params {
    void fields(Fields&) {}
  };
  Adder(const Params&, const Shape&, const Shape&) { parameters_.push_back({"w", {1}, 0}); }
  std::int64_t state_size() const override { return 1; }
  at::Tensor forward(const at::Tensor& x, at::Tensor& state, const Pass&) const override {
    std::vector<at::Tensor> predictions;
    for (std::int64_t t = 0; t < x.size(0); ++t) {
      state = state + x[t];
      predictions.push_back(state + leaves_[0]);
    }
    return at::stack(predictions);
  }
};

class Jitter final : public PerSample {
 public:
  struct Params {
    void fields(Fields&) {}
  };
  Jitter(const Params&, const NodeContext& context)
      : PerSample(context), random_(std::hash<std::string>()(context.node.id)) {}

 private:
  std::optional<Sample> apply(Sample sample) override {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
    return sample;
  }
  std::minstd_rand random_;
};

Registry adder_registry() {
  static const bool added = [] {
    add_model_type(make_model_type<Adder>("adder", "adds up"));
    return true;
  }();
  static_cast<void>(added);
  Registry registry = test_registry();
  registry.nodes.push_back(node_type<Jitter>("jitter", "takes its time", Role::kPerSample, {{"sample", "sample"}},
                                             {{"sample", "sample"}},
                                             [](InferContext& c) { c.node.signatures = {c.inputs[0]}; }));
  return registry;
}

// Stream k always gives k + 1.
Topology adding(const std::string& run) {
  Topology t;
  std::string values;
  for (int k = 0; k < 16; ++k) values += fmt::format("{}{}", k > 0 ? "," : "", k + 1);
  t.source = fmt::format(
      R"("type": "constant", "params": {{ "features": 1, "target": 0 }}, "each": {{ "value": [{}] }})", values);
  t.chain = R"( { "id": "jit", "repeat": 16, "type": "jitter", "in": [ { "from": "gen", "take": 1 } ] },)";
  t.last = "jit";
  t.model = R"("type": "adder")";
  t.optimizer = R"("name": "sgd", "lr": 1e-300)";
  t.run = run + R"(, "seed": 7, "state": "carry", "dtype": "float64", "threads": 4, "non_finite": "allow")";
  return t;
}

// Streams of even number have 7 + k samples a run, the others 1,000.
void make_uneven(Topology& t) {
  std::string lengths;
  for (int k = 0; k < 16; ++k) lengths += fmt::format("{}{}", k > 0 ? "," : "", k % 2 == 0 ? 7 + k : 1000);
  t.source.replace(t.source.find(R"("each": { )"), 10, fmt::format(R"("each": {{ "samples": [{}], )", lengths));
}

// The state of every stream in the newest checkpoint.
std::vector<double> states_in(const std::string& directory) {
  const std::optional<Checkpoint> checkpoint = CheckpointStore(directory, [](const std::string&) {}).newest();
  REQUIRE(checkpoint.has_value());
  for (const NamedTensor& t : checkpoint->state) {
    if (t.name != "recurrent") continue;
    const double* const values = t.tensor.const_data_ptr<double>();
    return {values, values + t.tensor.numel()};
  }
  FAIL("the checkpoint holds no recurrent state");
  return {};
}

void check_states(const std::string& directory, int n) {
  const std::vector<double> states = states_in(directory);
  REQUIRE(states.size() == 16);
  for (int k = 0; k < 16; ++k) {
    CAPTURE(k);
    CHECK(states[k] == n * (k + 1));
  }
}

}  // namespace

TEST_CASE(
    "recurrent state: after n samples that of stream k is n times k + 1, whatever the delays, the window and the "
    "step") {
  for (const char* const run :
       {R"("steps": 1000)", R"("steps": 250, "tbptt": 4)", R"("steps": 125, "tbptt": 4, "accumulate": 2)"}) {
    CAPTURE(run);
    const TemporaryFolder folder;
    const Ran ran = train_in(folder.path(), plans_of(adding(run).text(), {}, adder_registry()));
    REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
    check_states(folder.path(), 1000);
  }
}

TEST_CASE("recurrent state: it goes on where it was in a run that was stopped in the middle and resumed") {
  for (const char* const run : {R"("steps": 1000)", R"("steps": 250, "tbptt": 4)"}) {
    CAPTURE(run);
    const TemporaryFolder folder;
    const std::string text = adding(run).text();
    std::atomic<int> asked = 0;
    const Ran first =
        train_in(folder.path(), plans_of(text, {}, adder_registry()), false, [&] { return ++asked > 1000 ? 15 : 0; });
    REQUIRE(first.exit() == 11);
    const int steps = first.report["steps"];
    CHECK(steps < (std::string(run).find("tbptt") == std::string::npos ? 1000 : 250));
    check_states(folder.path(), steps * (std::string(run).find("tbptt") == std::string::npos ? 1 : 4));
    const Ran second = train_in(folder.path(), plans_of(text, {}, adder_registry()), true);
    REQUIRE_MESSAGE(second.exit() == 0, second.reason());
    check_states(folder.path(), 1000);
  }
}

TEST_CASE("recurrent state: a new run resets its own stream only, also inside a window") {
  Topology t = adding(R"("steps": 25, "tbptt": 4, "on_end": "restart")");
  make_uneven(t);
  const TemporaryFolder folder;
  const Ran ran = train_in(folder.path(), plans_of(t.text(), {}, adder_registry()));
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  const std::vector<double> states = states_in(folder.path());
  for (int k = 0; k < 16; ++k) {
    CAPTURE(k);
    const int length = k % 2 == 0 ? 7 + k : 1000, since = 100 % length == 0 ? length : 100 % length;
    CHECK(states[k] == since * (k + 1));
  }
}

TEST_CASE("recurrent state: fillers of an ended stream leave it as it is, also inside a window") {
  Topology t = adding(R"("steps": 25, "tbptt": 4, "on_end": "mask")");
  make_uneven(t);
  const TemporaryFolder folder;
  const Ran ran = train_in(folder.path(), plans_of(t.text(), {}, adder_registry()));
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  const std::vector<double> states = states_in(folder.path());
  for (int k = 0; k < 16; ++k) CHECK(states[k] == (k % 2 == 0 ? 7 + k : 100) * (k + 1));
}

TEST_CASE("recurrent state: a gap in time above max_gap begins a new sequence") {
  const TemporaryFolder folder;
  std::string csv = "t,x,y\n";
  for (int i = 0; i < 20; ++i) csv += fmt::format("{},1,0\n", i < 12 ? i : i + 3);  // 3 s are missing before row 12
  write_text(folder.path() + "/a.csv", csv);
  Topology t = adding(R"("steps": 20)");
  t.streams = 2, t.lanes = 1;
  t.chain = "";
  t.last = "gen";
  t.source = fmt::format(
      R"("type": "csv", "params": {{ "path": "{}/a.csv", "features": ["x"], "target": ["y"], "time": "t", "horizon": 0 }},
                            "each": {{ "max_gap": [3, 100] }})",
      folder.path());
  const Ran ran = train_in(folder.path() + "/run", plans_of(t.text(), {}, adder_registry()));
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  CHECK(states_in(folder.path() + "/run") == std::vector<double>{8, 20});
}

TEST_CASE("recurrent state: with zero every sample begins anew") {
  Topology t = adding(R"("steps": 10, "tbptt": 2)");
  t.run.replace(t.run.find("carry"), 5, "zero");
  const Ran ran = train(t.text(), {}, adder_registry());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  double mean = 0;
  for (int k = 1; k <= 16; ++k) mean += k * k / 16.0;  // the prediction is the sample, the target 0
  for (const double loss : ran.losses()) CHECK(loss == doctest::Approx(mean));
}

TEST_CASE("burn_in: the first samples of a sequence move the state and weigh nothing") {
  Topology t = adding(R"("steps": 10, "burn_in": 4)");
  const TemporaryFolder folder;
  const Ran ran = train_in(folder.path(), plans_of(t.text(), {}, adder_registry()));
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  check_states(folder.path(), 10);
  const std::vector<double> losses = ran.losses();
  for (int i = 0; i < 10; ++i) CHECK(std::isnan(losses[i]) == (i < 4));
}
