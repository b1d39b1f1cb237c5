#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

const std::int64_t kDay = 86'400'000'000'000;

Bench bench_of(const nlohmann::json& first = nlohmann::json::object(),
               const nlohmann::json& second = nlohmann::json::object(),
               const nlohmann::json& params = nlohmann::json::object()) {
  return Bench(
      {{"gen0", constant(), first}, {"gen1", constant(), second}, {"pair0", pair(), params, {"gen0", "gen1"}}});
}

Sample timed(double value, std::uint64_t seq, std::int64_t time) {
  Sample s = make_sample({value}, {value}, seq);
  s.tag.time = time;
  return s;
}

TEST_CASE("pair: rows stand in the order of the inputs, behind a time axis of 1") {
  const Bench bench = bench_of({{"features", 2}}, {{"features", 2}});
  NodeRunner join(bench, "pair0");
  Sample a = make_sample({1, 2}, {3}), b = make_sample({4, 5}, {6});
  a.tag.stream = 0;
  b.tag.stream = 1;
  const Batch batch = join.fire({Packet::of(a), Packet::of(b)}).packet->get<Batch>();
  CHECK(batch.x.sizes() == at::IntArrayRef({1, 2, 2}));
  CHECK(batch.y.sizes() == at::IntArrayRef({1, 2, 1}));
  CHECK(text(batch.x) == "1 2 4 5");
  CHECK(text(batch.y) == "3 6");
  CHECK_FALSE(batch.known.defined());
  CHECK((batch.rows.size() == 2 && batch.rows[0].stream == 0 && batch.rows[1].stream == 1));
}

TEST_CASE("pair: what is not known stands as NaN beside what is") {
  const Bench bench = bench_of();
  NodeRunner join(bench, "pair0");
  Sample a = make_sample({1}, {3});
  const Sample b = make_sample({4}, {6});
  a.known = make_tensor(std::vector<double>{2}, {1}, at::kFloat);
  CHECK(text(join.fire({Packet::of(a), Packet::of(b)}).packet->get<Batch>().known) == "2 nan");
}

TEST_CASE("pair: a gap and a repeat are errors that name the stream") {
  const Bench bench = bench_of();
  const auto fire = [&bench](std::uint64_t first, std::uint64_t second) {
    NodeRunner join(bench, "pair0");
    join.fire({Packet::of(make_sample({1}, {1}, 0)), Packet::of(make_sample({1}, {1}, 0))});
    return error_of([&] {
      join.fire({Packet::of(make_sample({1}, {1}, first)), Packet::of(make_sample({1}, {1}, second))});
    });
  };
  CHECK(fire(1, 1) == "");
  CHECK(fire(2, 1) == "70: stream \"gen0\" sent sample 2 where 1 was due: a gap");
  CHECK(fire(1, 0) == "70: stream \"gen1\" sent sample 0 where 1 was due: a repeat");
}

TEST_CASE("pair: a sample that is not what was told of it is an error that names the node that sent it") {
  const Bench bench = bench_of();
  NodeRunner join(bench, "pair0");
  const auto fire = [&](const Sample& second) {
    return error_of([&] { join.fire({Packet::of(make_sample({1}, {1})), Packet::of(second)}); });
  };
  const std::string sends = "70: gen1 sends ", tries = "; `lanewise check-node` tries its type";
  CHECK(fire(make_sample({1, 2}, {1})) == sends + "x as [2] of Float, where it told [1] of Float" + tries);
  CHECK(fire(make_sample({1}, {1}, 0, at::kDouble)) ==
        sends + "x as [1] of Double, where it told [1] of Float" + tries);
  Sample none = make_sample({1}, {1});
  none.y.reset();
  CHECK(fire(none) == sends + "y as nothing, where it told [1] of Float" + tries);
}

TEST_CASE("pair: the end of a stream is a batch that names it and holds what the others had") {
  const Bench bench = bench_of();
  NodeRunner join(bench, "pair0");
  Sample left = make_sample({1}, {1}, 0);
  left.tag.stream = 0;
  const Fired fired = join.fire({Packet::of(left), Packet()});
  CHECK(fired.ended);
  const Batch batch = fired.packet->get<Batch>();
  CHECK(batch.cut);
  CHECK(batch.cut_by == "gen1");
  CHECK_FALSE(batch.x.defined());
  REQUIRE(batch.rows.size() == 1);
  CHECK(batch.rows[0].stream == 0);
}

TEST_CASE("pair: streams are named by their source, whatever lies between") {
  const Bench bench({{"gen0", constant()},
                     {"gen1", constant()},
                     {"win1", window(), nlohmann::json::object(), {"gen1"}},
                     {"pair0", pair(), nlohmann::json::object(), {"gen0", "win1"}}});
  NodeRunner join(bench, "pair0");
  CHECK(join.fire({Packet::of(make_sample({1}, {1})), Packet()}).packet->get<Batch>().cut_by == "gen1");
}

// Fires 40 rounds of two clocks with the given steps; the first error.
std::string clocks(const nlohmann::json& params, const std::function<std::int64_t(int)>& first,
                   const std::function<std::int64_t(int)>& second) {
  const Bench bench = bench_of({}, {}, params);
  NodeRunner join(bench, "pair0");
  return error_of([&] {
    for (int i = 0; i < 40; ++i) join.fire({Packet::of(timed(1, i, first(i))), Packet::of(timed(1, i, second(i)))});
  });
}

TEST_CASE("pair: clocks of different rates are refused unless time is to be ignored") {
  const auto daily = [](int i) { return i * kDay; };
  const auto hourly = [](int i) { return i * kDay / 24; };
  CHECK(clocks({}, daily, hourly) ==
        "4: a sample of stream \"gen1\" is 3600 s after the one before, of stream \"gen0\" 86400 s: their clocks run "
        "at different "
        "rates; \"match\": \"seq\" pairs them all the same");
  CHECK(clocks({{"match", "seq"}}, daily, hourly) == "");
}

TEST_CASE("pair: clocks may be shifted, and have gaps") {
  const auto daily = [](int i) { return i * kDay; };
  const auto with_gaps = [](int i) { return (1000 + i + i / 5 * 2) * kDay; };  // two days are left out in seven
  CHECK(clocks({}, daily, with_gaps) == "");
}

TEST_CASE("pair: unequal shapes are refused before a run, naming the nodes") {
  CHECK(rules_of(bench_of({{"features", 3}}, {{"features", 2}}).problems) ==
        Lines{"gen0 sends x [3], y [1], gen1 sends x [2], y [1]: rows of a batch must be alike"});
}

TEST_CASE("pair: its signature joins the streams and is as long as the shortest") {
  const Signature endless = bench_of().node("pair0").signatures[0];
  CHECK(endless.streams == Lines{"gen0", "gen1"});
  CHECK(endless.endless);
  const Signature mixed = bench_of({{"samples", 9}}, {}).node("pair0").signatures[0];
  CHECK_FALSE(mixed.endless);
  CHECK(mixed.length == 9);
  CHECK(bench_of({{"samples", 9}}, {{"samples", 5}}).node("pair0").signatures[0].length == 5);
}

}  // namespace
}  // namespace lanewise
