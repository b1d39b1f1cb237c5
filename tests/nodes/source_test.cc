#include "nodes/source.h"

#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

Bench ramp(int samples, SourceRules rules) {
  return Bench({{"gen0", constant(), {{"value", 0}, {"ramp", 1}, {"samples", samples}}}}, rules);
}

TEST_CASE("source: under `first` a stream ends after its samples") {
  const Bench bench = ramp(3, {.end_rule = "first"});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(10)) ==
        Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 | x 1 | y 1", "run 0 seq 2 | x 2 | y 2"});
}

TEST_CASE("source: under `restart` runs follow each other, seq goes on, and what exceeds `passes` says so") {
  const Bench bench = ramp(2, {.end_rule = "restart", .passes = 2});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(6)) == Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 | x 1 | y 1",
                                    "run 1 seq 2 start | x 2 | y 2", "run 1 seq 3 | x 3 | y 3",
                                    "run 2 seq 4 start ended | x 4 | y 4", "run 2 seq 5 ended | x 5 | y 5"});
}

TEST_CASE("source: under `restart` without passes no sample is marked as ended") {
  const Bench bench = ramp(1, {.end_rule = "restart"});
  NodeRunner gen(bench, "gen0");
  for (const Sample& s : gen.take(5)) CHECK_FALSE(s.tag.ended);
}

TEST_CASE("source: under `mask` fillers of the same shape follow for ever") {
  const Bench bench = ramp(1, {.end_rule = "mask"});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(3)) == Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 filler ended weight 0 | x 0 | y 0",
                                    "run 0 seq 2 filler ended weight 0 | x 0 | y 0"});
}

TEST_CASE("source: a source restored just before its end sends fillers of the right shape") {
  const Bench bench({{"gen0", constant(), {{"features", 3}, {"samples", 1}}}}, {.end_rule = "mask"});
  NodeRunner first(bench, "gen0"), second(bench, "gen0");
  first.take(1);
  second.node().restore(first.node().state());
  CHECK(texts(second.take(1)) == Lines{"run 0 seq 1 filler ended weight 0 | x 0 0 0 | y 0"});
}

TEST_CASE("source: its weight is that of its samples, and fillers have none") {
  const Bench bench({{"gen0", constant(), {{"weight", 0.25}, {"samples", 1}}}}, {.end_rule = "mask"});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(2)) ==
        Lines{"run 0 seq 0 start weight 0.25 | x 1 | y 1", "run 0 seq 1 filler ended weight 0 | x 0 | y 0"});
}

TEST_CASE("source: an evaluation knows the target before, and nothing at first") {
  const Bench bench = ramp(3, {.end_rule = "mask", .evaluating = true});
  NodeRunner gen(bench, "gen0");
  CHECK(texts(gen.take(4)) == Lines{"run 0 seq 0 start | x 0 | y 0", "run 0 seq 1 | x 1 | y 1 | known 0",
                                    "run 0 seq 2 | x 2 | y 2 | known 1",
                                    "run 0 seq 3 filler ended weight 0 | x 0 | y 0"});
}

TEST_CASE("source: samples have the run's dtype") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Bench bench({{"gen0", ar1()}}, {.dtype = dtype});
    NodeRunner gen(bench, "gen0");
    const Sample sample = gen.take(1)[0];
    CHECK((sample.x.scalar_type() == dtype));
    CHECK((sample.y.scalar_type() == dtype));
  }
}

TEST_CASE("source: a stream without any sample is an error that names it") {
  const TemporaryFile file("a\n1\n2\n");
  const nlohmann::json params = {{"path", file.path()}, {"features", {"a"}}, {"target", {"a"}}, {"rows", "5:"}};
  for (const char* rule : {"first", "restart", "mask"}) {
    const Bench bench({{"gen0", csv(), params}}, {.end_rule = rule});
    NodeRunner gen(bench, "gen0");
    CHECK(error_of([&] { gen.fire(); }) == "4: stream \"gen0\" has no sample at all; ask for rows that its data has");
  }
}

TEST_CASE("source: an endless stream says so, one with a number of samples how many") {
  const Bench bench({{"a", sine()}, {"b", sine(), {{"samples", 40}}}});
  CHECK(bench.node("a").signatures[0].endless);
  CHECK_FALSE(bench.node("a").signatures[0].length);
  CHECK_FALSE(bench.node("b").signatures[0].endless);
  CHECK(bench.node("b").signatures[0].length == 40);
}

}  // namespace
}  // namespace lanewise
