#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

const double kNaN = std::numeric_limits<double>::quiet_NaN();

Bench bench_with(const nlohmann::json& params, SourceRules rules = {},
                 const nlohmann::json& source = {{"samples", 10}}) {
  return Bench({{"gen0", constant(), source}, {"norm0", normalize(), params, {"gen0"}}}, rules);
}

std::string through(NodeRunner& norm, const Sample& sample) { return text(*norm.fire({Packet::of(sample)}).sample()); }

TEST_CASE(
    "normalize: scales x, y and what was known by the statistics of its table entry; missing values are the mean") {
  Bench bench = bench_with({});
  bench.normalization.set("norm0", {{10, 0}, {2, 1}, {100}, {50}});
  NodeRunner norm(bench, "norm0");
  Sample s = make_sample({14, kNaN}, {150});
  s.known = make_tensor(std::vector<double>{kNaN}, {1}, at::kFloat);
  CHECK(through(norm, s) == "run 0 seq 0 start | x 2 0 | y 1 | known nan");
  s = make_sample({10, 3}, {kNaN}, 1);
  s.known = make_tensor(std::vector<double>{50}, {1}, at::kFloat);
  CHECK(through(norm, s) == "run 0 seq 1 | x 0 3 | y nan | known -1");
}

TEST_CASE("normalize: columns are those of the last axis, for windows too") {
  Bench bench = bench_with({});
  bench.normalization.set("norm0", {{1, 2}, {1, 2}, {0}, {1}});
  NodeRunner norm(bench, "norm0");
  Sample s = make_sample({0}, {5});
  s.x = at::tensor({1.0f, 2.0f, 3.0f, 6.0f}).reshape({2, 2});
  CHECK(through(norm, s) == "run 0 seq 0 start | x 0 0 2 2 | y 5");
}

TEST_CASE("normalize: leaves targets alone when told to, and class numbers always") {
  Bench bench = bench_with({{"target", false}});
  bench.normalization.set("norm0", {{1}, {2}, {}, {}});
  NodeRunner norm(bench, "norm0");
  CHECK(through(norm, make_sample({3}, {7})) == "run 0 seq 0 start | x 1 | y 7");
  Sample classes = make_sample({3}, {7}, 1);
  classes.y = at::full({1}, 2, at::kLong);
  const Sample out = *norm.fire({Packet::of(classes)}).sample();
  CHECK(text(out) == "run 0 seq 1 | x 1 | y 2");
  CHECK((out.y.scalar_type() == at::kLong));
}

TEST_CASE("normalize: a filler passes untouched") {
  Bench bench = bench_with({});
  bench.normalization.set("norm0", {{10}, {2}, {100}, {50}});
  NodeRunner norm(bench, "norm0");
  Sample s = make_sample({0}, {0});
  s.tag.filler = true;
  CHECK(through(norm, s) == "run 0 seq 0 start filler | x 0 | y 0");
}

TEST_CASE("normalize: computes in double and rounds once") {
  Bench bench = bench_with({});
  bench.normalization.set("norm0", {{1e8 + 1}, {3}, {0}, {1}});
  NodeRunner norm(bench, "norm0");
  const Sample out = *norm.fire({Packet::of(make_sample({1e8}, {0}))}).sample();
  CHECK(out.x.item<float>() == static_cast<float>(-1.0 / 3));
}

TEST_CASE("normalize: without statistics it refuses to be made; with other columns it says so") {
  Bench bench = bench_with({});
  CHECK(error_of([&] { bench.make("norm0"); }) == "70: norm0 was not fitted");
  bench.normalization.set("norm0", {{0}, {1}, {0}, {1}});
  NodeRunner norm(bench, "norm0");
  CHECK(error_of([&] {
          norm.fire({Packet::of(make_sample({1, 2}, {0}))});
        }) == "4: norm0 was fitted on 1 columns and got 2");
}

TEST_CASE("normalize: `running` scales by the samples so far and an evaluation by those of the training") {
  Bench training = bench_with({{"mode", "running"}});
  NodeRunner norm(training, "norm0");
  CHECK(through(norm, make_sample({5}, {1}, 0)) == "run 0 seq 0 start | x 0 | y 0");
  CHECK(through(norm, make_sample({7}, {3}, 1)) == "run 0 seq 1 | x 1 | y 1");
  Sample unweighted = make_sample({9}, {99}, 2);
  unweighted.tag.weight = 0;  // counts for x, which is known, and not for y
  CHECK(through(norm, unweighted) == "run 0 seq 2 weight 0 | x 1.22474 | y 97");

  Bench evaluation = bench_with({{"mode", "running"}}, {.end_rule = "mask", .evaluating = true});
  for (const auto& [id, statistics] : training.normalization.table()) evaluation.normalization.set(id, statistics);
  NodeRunner frozen(evaluation, "norm0");
  CHECK(through(frozen, make_sample({7}, {2}, 0)) == "run 0 seq 0 start | x 0 | y 0");
  CHECK(through(frozen, make_sample({7}, {2}, 1)) == "run 0 seq 1 | x 0 | y 0");
}

TEST_CASE("normalize: cannot fit on an endless stream") {
  const nlohmann::json endless = nlohmann::json::object();
  CHECK(rules_of(bench_with({}, {}, endless).problems) ==
        Lines{"gen0 is endless, so norm0 cannot fit on all of it: give \"fit_samples\", or \"mode\": \"running\""});
  CHECK(bench_with({{"fit_samples", 5}}, {}, endless).problems.empty());
  CHECK(bench_with({{"mode", "running"}}, {}, endless).problems.empty());
  CHECK(bench_with({}, {.end_rule = "mask", .evaluating = true}, endless).problems.empty());
}

}  // namespace
}  // namespace lanewise
