#include "graph/edge.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>

#include "graph/stage.h"
#include "tests/graph/plan_builder.h"

namespace lanewise {
namespace {

// Two stages for an edge to stand between; the tests drive the edge alone.
struct Ends {
  PlanBuilder b;
  const int a = b.pass("a"), c = b.pass("c");
  Stage from{b.body(a), b.plan.nodes[a]}, to{b.body(c), b.plan.nodes[c]};
};

std::string text(const Edge& edge) {
  const Edge::Counts c = edge.counts();
  std::string s = std::to_string(c.put) + " put, " + std::to_string(c.taken) + " taken, deepest " +
                  std::to_string(c.deepest) + ", holds";
  edge.for_each_left([&s](const Packet& p) { s += p.is_end() ? " end" : " " + std::to_string(p.get<Token>().seq); });
  return s + (edge.consistent() ? "" : ", inconsistent");
}

}  // namespace

TEST_CASE("packet: a copy shares the value and take() moves it out only for the last owner") {
  Packet a = Packet::of(std::string("weights of a fair length, so that they live on the heap"));
  Packet b = a;
  const char* const data = a.get<std::string>().data();
  CHECK(b.get<std::string>().data() == data);
  CHECK(a.take<std::string>().data() != data);
  CHECK(a.is_end());
  CHECK(b.take<std::string>().data() == data);
  CHECK(b.is_end());
}

TEST_CASE("packet: it tells its type and refuses another") {
  const Packet p = Packet::of(1.5);
  CHECK(p.holds<double>());
  CHECK_FALSE(p.holds<float>());
  CHECK_FALSE(Packet().holds<double>());
  CHECK_THROWS_WITH_AS(p.get<float>(), "a packet does not hold what its port promises", Error);
}

TEST_CASE("packet: a value dies with its last owner, whatever the order") {
  const auto value = std::make_shared<int>(7);
  {
    Packet a = Packet::of(value);
    Packet b = a;
    Packet c = std::move(a);
    b = Packet();
    CHECK(value.use_count() == 2);
    c = c.get<std::shared_ptr<int>>() ? c : Packet();
    CHECK(value.use_count() == 2);
  }
  CHECK(value.use_count() == 1);
}

TEST_CASE("edge: packets come out in the order they went in, over many turns of the ring") {
  for (const int capacity : {1, 2, 3, 5}) {
    Ends ends;
    Edge edge(ends.from, ends.to, capacity);
    std::int64_t in = 0, out = 0;
    for (int turn = 0; turn < 50; ++turn) {
      const int count = 1 + turn % capacity;
      for (int i = 0; i < count; ++i) CHECK(edge.put(token(0, in++)) == i);
      for (int i = 0; i < count; ++i) {
        Packet p;
        CHECK(edge.take(p) == count - i);
        CHECK(p.get<Token>().seq == out++);
      }
      CHECK(edge.consistent());
    }
    CHECK(edge.counts().deepest == capacity);
  }
}

TEST_CASE("edge: counters tell what was put, taken, left and how deep it was") {
  Ends ends;
  Edge edge(ends.from, ends.to, 3);
  CHECK(text(edge) == "0 put, 0 taken, deepest 0, holds");
  edge.put(token(0, 10));
  edge.put(token(0, 11));
  edge.put(Packet());
  CHECK(text(edge) == "3 put, 0 taken, deepest 3, holds 10 11 end");
  Packet p;
  edge.take(p);
  CHECK(p.get<Token>().seq == 10);
  CHECK(text(edge) == "3 put, 1 taken, deepest 3, holds 11 end");
}

TEST_CASE("edge: initial packets count as put, and more than the capacity are refused") {
  Ends ends;
  const Edge edge(ends.from, ends.to, 2, {token(0, 1), token(0, 2)});
  CHECK(text(edge) == "2 put, 0 taken, deepest 2, holds 1 2");
  CHECK_THROWS_AS(Edge(ends.from, ends.to, 1, {token(0, 1), token(0, 2)}), Error);
  CHECK_THROWS_AS(Edge(ends.from, ends.to, 0), Error);
}

TEST_CASE("edge: packets left on it are freed with it") {
  const auto value = std::make_shared<int>(7);
  Ends ends;
  {
    Edge edge(ends.from, ends.to, 4);
    for (int i = 0; i < 3; ++i) edge.put(Packet::of(value));
    CHECK(value.use_count() == 4);
  }
  CHECK(value.use_count() == 1);
}

TEST_CASE("edge: one producer and one consumer on two threads lose nothing and change no order") {
  constexpr std::int64_t kPackets = 4'000;
  for (const int capacity : {1, 2, 7}) {
    Ends ends;
    Edge edge(ends.from, ends.to, capacity);
    // Puts and takes so far. Relaxed: they only let a thread sleep while the edge is full or empty, which in a flow the
    // stages' counting is for; that packets arrive whole is up to the edge.
    std::atomic<int> moves{0};
    const auto moved = [&moves] {
      moves.fetch_add(1, std::memory_order_relaxed);
      moves.notify_all();
    };
    const auto wait_while = [&](int fill) {
      for (int seen = moves.load(std::memory_order_relaxed); edge.fill() == fill;
           seen = moves.load(std::memory_order_relaxed)) {
        moves.wait(seen, std::memory_order_relaxed);
      }
    };
    std::jthread producer([&] {
      for (std::int64_t i = 0; i < kPackets; ++i) {
        wait_while(capacity);
        edge.put(token(0, i));
        moved();
      }
    });
    std::int64_t wrong = 0;
    Packet p;
    for (std::int64_t i = 0; i < kPackets; ++i) {
      wait_while(0);
      edge.take(p);
      wrong += p.get<Token>().seq != i;
      moved();
    }
    producer.join();
    CHECK(wrong == 0);
    CHECK(edge.consistent());
    CHECK(edge.counts().taken == kPackets);
    CHECK(edge.counts().deepest <= capacity);
  }
}

}  // namespace lanewise
