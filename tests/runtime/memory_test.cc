// What the report says of memory, against sizes worked out from the pipeline.
#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

// Sixteen streams of 8 values and one target into eight lanes of an mlp 8-128-128-1.
Topology wide() {
  Topology t;
  t.source = R"("type": "ar1", "params": { "features": 8 })";
  t.model = R"("type": "mlp", "hidden": [128, 128])";
  t.optimizer = R"("name": "adamw", "lr": 0.001)";
  t.run = R"("steps": 50, "seed": 7)";
  t.capacity = 4;
  return t;
}

// Each parameter begins on a 64-byte boundary: the last bias takes as much.
constexpr std::int64_t padded(std::int64_t number) {
  const std::int64_t in_64_bytes = 64 / number;
  return (8 * 128 + 128 + 128 * 128 + 128 + 128 + in_64_bytes) * number;
}
// Per stream a loss and a weight, per lane four flags.
constexpr std::int64_t tail(int streams, int lanes, std::int64_t number) { return (2 * streams + 4 * lanes) * number; }

}  // namespace

TEST_CASE(
    "memory: weights, optimizer, a bucket a lane and the samples on edges have the sizes that the model gives them") {
  const nlohmann::ordered_json memory = train(wide().text()).report["memory"];
  CHECK(memory["weights"] == padded(4));
  CHECK(memory["optimizer"] == 2 * padded(4) + 4);  // both moments, and the count of steps
  CHECK(memory["buckets"] == 8 * (padded(4) + tail(16, 8, 4)));
  CHECK(memory["reduced"] == padded(4) + tail(16, 8, 4));
  // A sample is 9 numbers: 16 edges of 4 samples, and 8 of 2 batches of 2.
  CHECK(memory["queued"]["bound"] == (16 * 4 + 8 * 2 * 2) * 9 * 4);
  CHECK(memory["queued"]["deepest"] > 0);
  CHECK(memory["queued"]["deepest"] <= memory["queued"]["bound"]);
  CHECK(memory["peak_rss"] > 10 * 1024 * 1024);
}

TEST_CASE("memory: every memory domain counts, and float64 and time steps do as they take") {
  Topology t = wide();
  t.run = R"("steps": 20, "seed": 7, "dtype": "float64", "weights": "per_device", "tbptt": 3)";
  t.optimizer = R"("name": "sgd", "lr": 0.001, "momentum": 0.9)";
  const nlohmann::ordered_json memory = train(t.text()).report["memory"];
  CHECK(memory["weights"] == 8 * padded(8));
  CHECK(memory["optimizer"] == 8 * padded(8));
  CHECK(memory["buckets"] == 8 * (padded(8) + tail(16, 8, 8)));
  CHECK(memory["reduced"] == 8 * (padded(8) + tail(16, 8, 8)));
  CHECK(memory["queued"]["bound"] == (16 * 4 + 8 * 2 * 3 * 2) * 9 * 8);
}

TEST_CASE("memory: fused lanes have one bucket together, and their batches count besides those that they are made of") {
  const nlohmann::ordered_json memory = train(wide().text(), {"run.fuse=2"}).report["memory"];
  CHECK(memory["weights"] == padded(4));
  CHECK(memory["buckets"] == 2 * (padded(4) + tail(16, 2, 4)));
  CHECK(memory["queued"]["bound"] == (16 * 4 + 8 * 2 * 2 + 2 * 1 * 8) * 9 * 4);
}
