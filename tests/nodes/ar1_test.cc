#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

TEST_CASE("ar1: y is the mean of x") {
  const Bench bench({{"gen0", ar1(), {{"features", 5}}}}, {.dtype = at::kDouble});
  NodeRunner gen(bench, "gen0");
  for (const Sample& s : gen.take(20)) CHECK(s.y.item<double>() == doctest::Approx(s.x.mean().item<double>()));
}

TEST_CASE("ar1: whatever the correlation, values have unit variance and that correlation with the ones before") {
  for (const double c : {-0.7, 0.0, 0.9}) {
    const Bench bench({{"gen0", ar1(), {{"features", 64}, {"correlation", c}}}}, {.dtype = at::kDouble});
    NodeRunner gen(bench, "gen0");
    std::vector<at::Tensor> rows;
    for (const Sample& s : gen.take(2000)) rows.push_back(s.x);
    const at::Tensor x = at::stack(rows);
    CHECK(x.square().mean().item<double>() == doctest::Approx(1).epsilon(0.03));
    const at::Tensor lagged = x.slice(0, 1, 2000) * x.slice(0, 0, 1999);
    CHECK(lagged.mean().item<double>() == doctest::Approx(c).epsilon(0.03).scale(1));
  }
}

TEST_CASE("ar1: the same seed gives the same samples, another seed others") {
  const Bench a({{"gen0", ar1()}}, {}, 1), b({{"gen0", ar1()}}, {}, 1), c({{"gen0", ar1()}}, {}, 2);
  NodeRunner first(a, "gen0"), second(b, "gen0"), third(c, "gen0");
  for (int i = 0; i < 10; ++i) {
    const Sample s = *first.fire().sample();
    CHECK(same(s, *second.fire().sample()));
    CHECK_FALSE(same(s, *third.fire().sample()));
  }
}

TEST_CASE("ar1: a new run starts afresh") {
  const Bench bench({{"gen0", ar1(), {{"correlation", 1}, {"samples", 3}}}}, {.end_rule = "restart"});
  NodeRunner gen(bench, "gen0");
  const std::vector<Sample> s = gen.take(6);
  CHECK(same(s[0].x, s[2].x));
  CHECK_FALSE(same(s[2].x, s[3].x));
}

}  // namespace
}  // namespace lanewise
