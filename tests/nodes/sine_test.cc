#include <numbers>
#include <set>

#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

TEST_CASE("sine: without noise x holds the last values of the wave and y the next") {
  const Bench bench({{"gen0", sine(), {{"features", 3}, {"period", 7}, {"amplitude", 2}, {"phase", 0.25}}}},
                    {.dtype = at::kDouble});
  NodeRunner gen(bench, "gen0");
  std::int64_t k = 0;
  for (const Sample& s : gen.take(30)) {
    const auto wave = [](double t) { return 2 * std::sin(2 * std::numbers::pi * (t / 7 + 0.25)); };
    std::vector<double> values = tensor_values(s.x);
    values.push_back(s.y.item<double>());
    for (std::int64_t i = 0; i < 4; ++i) {
      CHECK(values[static_cast<std::size_t>(i)] ==
            doctest::Approx(wave(static_cast<double>(k + i))).epsilon(1e-12).scale(1));
    }
    ++k;
  }
}

TEST_CASE("sine: a value keeps its noise as it moves through the window") {
  const Bench bench({{"gen0", sine(), {{"features", 4}, {"noise", 0.5}}}});
  NodeRunner gen(bench, "gen0");
  const std::vector<Sample> samples = gen.take(10);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    CHECK(same(samples[i].x.slice(0, 0, 3), samples[i - 1].x.slice(0, 1, 4)));
    CHECK(same(samples[i].x.slice(0, 3, 4), samples[i - 1].y));
  }
}

TEST_CASE("sine: sixteen streams of one seed have no eight values in common, and a second run has the same") {
  std::vector<BenchNode> parts;
  for (int i = 0; i < 16; ++i) {
    parts.push_back({fmt::format("gen{}", i), sine(), {{"features", 1}, {"amplitude", 0}, {"noise", 1}}});
  }
  const Bench bench(parts);
  std::set<std::vector<double>> windows;
  std::size_t count = 0;
  for (int i = 0; i < 16; ++i) {
    NodeRunner gen(bench, fmt::format("gen{}", i)), again(bench, fmt::format("gen{}", i));
    std::vector<double> values;
    const std::vector<Sample> samples = gen.take(1000), others = again.take(1000);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      REQUIRE(same(samples[k], others[k]));
      values.push_back(samples[k].y.item<double>());
      if (values.size() < 8) continue;
      windows.insert({values.end() - 8, values.end()});
      ++count;
    }
  }
  CHECK(count == 16 * 993);
  CHECK(windows.size() == count);
}

TEST_CASE("sine: the numbers of a stream stay when other streams come before it") {
  const nlohmann::json params = {{"noise", 1}};
  const Bench one({{"gen1", sine(), params}}), two({{"gen0", sine(), params}, {"gen1", sine(), params}});
  NodeRunner alone(one, "gen1"), beside(two, "gen1");
  const std::vector<Sample> a = alone.take(20), b = beside.take(20);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK((same(a[i].x, b[i].x) && same(a[i].y, b[i].y)));
}

TEST_CASE("sine: an evaluation draws other noise than the training, and a restart other noise than the run before") {
  const nlohmann::json params = {{"amplitude", 0}, {"noise", 1}, {"samples", 5}};
  const Bench training({{"gen0", sine(), params}}, {.end_rule = "restart"});
  const Bench evaluation({{"gen0", sine(), params}}, {.end_rule = "mask", .evaluating = true});
  NodeRunner train(training, "gen0"), evaluate(evaluation, "gen0");
  const std::vector<Sample> t = train.take(10), e = evaluate.take(5);
  CHECK_FALSE(same(t[0].x, e[0].x));
  CHECK_FALSE(same(t[0].x, t[5].x));
}

TEST_CASE("sine: a restart begins the wave again") {
  const Bench bench({{"gen0", sine(), {{"period", 10}, {"samples", 3}}}}, {.end_rule = "restart"});
  NodeRunner gen(bench, "gen0");
  const std::vector<Sample> s = gen.take(6);
  for (std::size_t i = 0; i < 3; ++i) CHECK(same(s[i].x, s[i + 3].x));
}

}  // namespace
}  // namespace lanewise
