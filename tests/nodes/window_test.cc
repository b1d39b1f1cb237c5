#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

Bench bench_with(int length) {
  return Bench(
      {{"gen0", constant(), {{"features", 2}, {"samples", 10}}}, {"win0", window(), {{"length", length}}, {"gen0"}}});
}

// What comes out for samples, "-" for one that was absorbed.
Lines through(NodeRunner& win, const std::vector<Sample>& samples) {
  Lines lines;
  for (const Sample& s : samples) {
    const Fired fired = win.fire({Packet::of(s)});
    CHECK(fired.absorbed == (fired.packet ? 0 : 1));
    lines.push_back(fired.packet ? text(*fired.sample()) : "-");
  }
  return lines;
}

Sample of_run(std::uint64_t run, std::uint64_t seq, double value, bool start) {
  Sample s = make_sample({value}, {value * 10}, seq);
  s.tag.run = run;
  s.tag.start = start;
  return s;
}

TEST_CASE("window: gives the newest samples, oldest first, once it is full, and renumbers them") {
  const Bench bench = bench_with(3);
  NodeRunner win(bench, "win0");
  std::vector<Sample> in;
  for (int i = 0; i < 5; ++i) in.push_back(of_run(0, i, i, i == 0));
  in[3].tag.weight = 0;
  CHECK(through(win, in) == Lines{"-", "-", "run 0 seq 0 start | x 0 1 2 | y 20",
                                  "run 0 seq 1 weight 0 | x 1 2 3 | y 30", "run 0 seq 2 | x 2 3 4 | y 40"});
  CHECK(bench.node("win0").signatures[0].text() == "x [3, 2], y [1]");
  CHECK(bench.node("win0").signatures[0].length == 8);
}

TEST_CASE("window: a new run starts an empty window, and its first window says that it starts") {
  const Bench bench = bench_with(2);
  NodeRunner win(bench, "win0");
  CHECK(through(win, {of_run(0, 0, 1, true), of_run(0, 1, 2, false), of_run(1, 2, 3, true), of_run(1, 3, 4, false)}) ==
        Lines{"-", "run 0 seq 0 start | x 1 2 | y 20", "-", "run 1 seq 1 start | x 3 4 | y 40"});
}

TEST_CASE("window: a filler passes in the shape of a window, at any time, and leaves no trace") {
  const Bench bench = bench_with(2);
  NodeRunner win(bench, "win0");
  Sample filler = of_run(0, 1, 0, false);
  filler.tag.filler = filler.tag.ended = true;
  filler.tag.weight = 0;
  CHECK(through(win, {of_run(0, 0, 1, true), filler, of_run(0, 2, 3, false)}) ==
        Lines{"-", "run 0 seq 0 filler ended weight 0 | x 0 0 | y 0", "run 0 seq 1 start | x 1 3 | y 30"});
}

TEST_CASE("window: carries what was known along with the target") {
  const Bench bench = bench_with(1);
  NodeRunner win(bench, "win0");
  Sample s = make_sample({1}, {2});
  s.known = make_tensor(std::vector<double>{5}, {1}, at::kFloat);
  CHECK(through(win, {s}) == Lines{"run 0 seq 0 start | x 1 | y 2 | known 5"});
}

TEST_CASE("window: a longer sample keeps its axes behind the time axis") {
  const Bench bench = bench_with(2);
  NodeRunner win(bench, "win0");
  Sample s = make_sample({1}, {2});
  s.x = at::arange(6, at::kFloat).reshape({2, 3});
  win.fire({Packet::of(s)});
  s.tag.start = false;
  CHECK(win.fire({Packet::of(s)}).sample()->x.sizes() == at::IntArrayRef({2, 2, 3}));
}

}  // namespace
}  // namespace lanewise
