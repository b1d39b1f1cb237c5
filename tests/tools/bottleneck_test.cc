// What bounds a round, of made-up numbers.
#include "tools/bottleneck.h"

#include <doctest/doctest.h>

namespace lanewise {
namespace {

using Place = NodeWork::Place;

// Two sources, a join, two lanes, reduction and optimizer.
std::vector<NodeWork> pipeline(double gen0, double gen1, double lane, double reduce, double opt) {
  return {{"gen0", "gen", Place::kBeside, gen0, gen0}, {"gen1", "gen", Place::kBeside, gen1, gen1},
          {"pair", "pair", Place::kBeside, 2, 2},      {"lane0", "lane", Place::kLane, lane, lane},
          {"lane1", "lane", Place::kLane, lane, lane}, {"reduce", "reduce", Place::kAfterLanes, reduce, reduce},
          {"opt", "opt", Place::kAfterLanes, opt, opt}};
}

Bottleneck first(const std::vector<NodeWork>& nodes, int threads, double round) {
  return find_bottlenecks(nodes, threads, round).front();
}

}  // namespace

TEST_CASE("bottleneck: a slow source is named, and without it the lanes' circle is what is left") {
  const Bottleneck b = first(pipeline(10, 116, 30, 5, 6), 8, 120);
  CHECK(b.name == "gen");
  CHECK(b.busiest == "gen1");
  CHECK(b.share == doctest::Approx(116.0 / 120));
  CHECK(b.free == doctest::Approx(30 + 5 + 6 + 4));  // the rest, 120 - 116, stays
  CHECK(sentence(b) ==
        "gen bounds a round: gen1 is busy 97 % of the time; were gen free, a round would take 45.0 µs instead of 120 "
        "(2.7 times as fast).");
}

TEST_CASE("bottleneck: a program that its source waits for bounds a round without any work on a thread") {
  std::vector<NodeWork> nodes = pipeline(1, 1, 30, 5, 6);
  nodes[0].pace = 2000;
  const Bottleneck b = first(nodes, 2, 2010);
  CHECK(b.busiest == "gen0");
  CHECK(sentence(b) ==
        "gen bounds a round: gen0 waits for its program or works 100 % of the time; were gen free, a round would take "
        "51.0 µs instead of 2,010 (39.4 times as fast).");
}

TEST_CASE("bottleneck: heavy lanes are named, by the longest or by what all take of the threads") {
  const Bottleneck wide = first(pipeline(10, 10, 300, 20, 10), 2, 340);
  CHECK(wide.name == "lane");
  CHECK(wide.busiest == "lane0");
  CHECK(wide.free == doctest::Approx(30 + 340 - 330));
  const Bottleneck narrow = first(pipeline(10, 10, 300, 20, 10), 1, 660);
  CHECK(narrow.busiest == "");
  CHECK(narrow.share == doctest::Approx(600.0 / 660));
  CHECK(sentence(narrow) ==
        "lane bounds a round: its 2 nodes take 91 % of the threads' time; were lane free, a round would take 60.0 µs "
        "instead of 660 (11.0 times as fast).");
}

TEST_CASE("bottleneck: the optimizer, too few threads, and what no node explains are named as what they are") {
  CHECK(first(pipeline(5, 5, 10, 5, 400), 2, 420).name == "opt");
  // Eight groups that are alike: nothing by itself is worth as much as more threads.
  std::vector<NodeWork> alike;
  for (int i = 0; i < 8; ++i) {
    const std::string id(1, static_cast<char>('a' + i));
    alike.push_back({id, id, Place::kBeside, 50, 50});
  }
  const Bottleneck threads = first(alike, 2, 210);
  CHECK(threads.kind == Bottleneck::Kind::kThreads);
  CHECK(threads.free == doctest::Approx(50 + 10));
  CHECK(sentence(threads) ==
        "The threads bound a round: 95 % of their time is work; with threads to spare, a round would take 60.0 µs "
        "instead of 210 (3.5 times as fast).");
  const Bottleneck rest = first(pipeline(2, 2, 10, 5, 5), 2, 100);
  CHECK(rest.kind == Bottleneck::Kind::kRest);
  CHECK(rest.free == doctest::Approx(20));
  CHECK(rest.share == doctest::Approx(0.8));
}

TEST_CASE("bottleneck: nothing makes a round longer, and all that could be free is listed, what saves most first") {
  for (const double round : {1.0, 50.0, 500.0}) {
    const std::vector<Bottleneck> all = find_bottlenecks(pipeline(40, 10, 30, 5, 6), 2, round);
    CHECK(all.size() == 5 + 2);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i].free <= round);
      CHECK(all[i].share <= 1);
      if (i > 0) CHECK(all[i - 1].free <= all[i].free);
    }
  }
}

}  // namespace lanewise
