// Whole trainings by the library and by our own loops are the same mathematics.
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/compare_runs.h"

using namespace lanewise;

namespace {

// Streams of unequal lengths and weights, one of which never counts, three in two lanes and tbptt of two.
constexpr const char* kPipeline = R"({
  "name": "kernels",
  "models": { "net": { "type": "mlp", "hidden": [9, 20], "activation": "tanh", "dropout": 0.1 } },
  "nodes": [
    { "id": "gen", "repeat": 4, "type": "sine",
      "each": { "period": 7, "samples": [24, 40, 32, 36], "weight": [1, 0.5, 0.25, 0] }, "params": { "features": 3, "noise": 0.2 } },
    { "id": "pair", "repeat": 2, "type": "pair", "in": [ { "from": "gen", "take": 2 } ] },
    { "id": "lane", "repeat": 2, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "cpu:*", "params": { "model": "net", "loss": "huber", "delta": 0.3 } },
    { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
    { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "name": "adamw", "lr": 0.01, "eps": 1e-6 } } ],
  "run": { "passes": 1, "on_end": "mask", "seed": 5, "tbptt": 2, "dtype": "float64" } })";

TrainedRun trained(const std::string& kernel, const std::string& dtype) {
  const Ran ran = train(kPipeline, {"models.net.kernel=" + kernel, "run.dtype=" + dtype});
  REQUIRE(ran.reason() == "every stream has ended");
  return {ran.losses(), ran.weights};
}

}  // namespace

TEST_CASE("kernel: a training with unequal weights, fillers and windows is that of the library") {
  for (const auto& [dtype, tolerance] : {std::pair{"float64", 1e-12}, {"float32", 1e-5}}) {
    const TrainedRun library = trained("library", dtype), native = trained("native", dtype);
    CHECK(library.losses.size() == 20);
    const Verdict verdict = compare_runs(native, library, tolerance);
    CHECK_MESSAGE(verdict.word == "equal", verdict.text());
  }
}
