#include <array>

#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

// Many small Euler steps: slow, and another rule than the node's.
std::array<double, 3> euler(std::array<double, 3> s, double time) {
  constexpr int kSteps = 200000;
  const double dt = time / kSteps;
  for (int i = 0; i < kSteps; ++i) {
    s = {s[0] + dt * 10 * (s[1] - s[0]), s[1] + dt * (s[0] * (28 - s[2]) - s[1]),
         s[2] + dt * (s[0] * s[1] - 8.0 / 3 * s[2])};
  }
  return s;
}

TEST_CASE("lorenz: y is the state one step after x") {
  const Bench bench({{"gen0", lorenz(), {{"scale", 1}}}}, {.dtype = at::kDouble});
  NodeRunner gen(bench, "gen0");
  for (const Sample& s : gen.take(3)) {
    const std::vector<double> x = tensor_values(s.x), y = tensor_values(s.y);
    const std::array<double, 3> right = euler({x[0], x[1], x[2]}, 0.02);
    for (std::size_t i = 0; i < 3; ++i) CHECK(y[i] == doctest::Approx(right[i]).epsilon(1e-4).scale(1));
  }
}

TEST_CASE("lorenz: the next x is this y, and it stays on the attractor") {
  const Bench bench({{"gen0", lorenz(), {{"scale", 1}}}});
  NodeRunner gen(bench, "gen0");
  const std::vector<Sample> samples = gen.take(2000);
  double smallest = 0, largest = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    REQUIRE(same(samples[i].x, samples[i - 1].y));
    smallest = std::min(smallest, samples[i].x[0].item<double>());
    largest = std::max(largest, samples[i].x[0].item<double>());
  }
  CHECK(smallest > -22);
  CHECK(smallest < -10);
  CHECK(largest < 22);
  CHECK(largest > 10);
}

TEST_CASE("lorenz: the target may be some of the coordinates, and all are scaled") {
  const Bench full({{"gen0", lorenz(), {{"scale", 1}}}}, {.dtype = at::kDouble});
  const Bench part({{"gen0", lorenz(), {{"scale", 0.5}, {"target", {"z", "x"}}}}}, {.dtype = at::kDouble});
  NodeRunner all(full, "gen0"), some(part, "gen0");
  const Sample a = all.take(1)[0], b = some.take(1)[0];
  CHECK(same(b.x, a.x * 0.5));
  CHECK(same(b.y, at::stack({a.y[2], a.y[0]}) * 0.5));
  CHECK(part.node("gen0").signatures[0].y == Shape{2});
}

TEST_CASE("lorenz: streams and runs begin at points of their own") {
  const Bench bench({{"gen0", lorenz(), {{"samples", 1}}}, {"gen1", lorenz()}}, {.end_rule = "restart"});
  NodeRunner first(bench, "gen0"), second(bench, "gen1");
  const std::vector<Sample> runs = first.take(2);
  CHECK_FALSE(same(runs[0].x, runs[1].x));
  CHECK_FALSE(same(runs[0].x, second.take(1)[0].x));
}

}  // namespace
}  // namespace lanewise
