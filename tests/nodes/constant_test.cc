#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("constant: value, ramp and target") {
  const Bench bench({{"a", constant(), {{"features", 2}, {"value", 3}}},
                     {"b", constant(), {{"value", 10}, {"ramp", -0.5}}},
                     {"c", constant(), {{"target", 7}}}});
  CHECK(texts(NodeRunner(bench, "a").take(2)) == Lines{"run 0 seq 0 start | x 3 3 | y 3", "run 0 seq 1 | x 3 3 | y 3"});
  CHECK(texts(NodeRunner(bench, "b").take(2)) ==
        Lines{"run 0 seq 0 start | x 10 | y 10", "run 0 seq 1 | x 9.5 | y 9.5"});
  CHECK(texts(NodeRunner(bench, "c").take(1)) == Lines{"run 0 seq 0 start | x 1 | y 7"});
}

}  // namespace
}  // namespace lanewise
