// Order, identity and bounds of whole flows under random delays: what must hold whatever the threads do.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "graph/flow.h"
#include "tests/graph/plan_builder.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

// Mostly nothing, often a few microseconds, now and then a step back for other threads, rarely a sleep.
class Delay {
 public:
  explicit Delay(std::uint64_t seed) : random_(seed) {}
  void operator()() {
    const std::uint64_t r = random_();
    if (r % 4096 == 0) return std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (r % 256 == 1) return std::this_thread::yield();
    if (r % 8 != 0) return;
    const auto until = Clock::now() + std::chrono::nanoseconds(300 + (r >> 8) % 3000);
    while (Clock::now() < until) {
    }
  }

 private:
  std::minstd_rand random_;
};

struct Case {
  int threads, capacity;
  std::int64_t rounds;
};

// Runs 16 streams through 8 lanes with a delay in every body; returns the packets that were not the expected ones.
int misplaced(const Case& c, std::uint64_t seed) {
  std::atomic<int> wrong{0};
  const auto expect = [&wrong](const Packet& p, int stream, std::uint64_t k) {
    const Token& t = p.get<Token>();
    if (t.stream != stream || t.seq != static_cast<std::int64_t>(k)) ++wrong;
  };
  const auto delay = [seed](int i) { return Delay(seed * 1000 + static_cast<std::uint64_t>(i)); };
  LaneBodies bodies;
  bodies.gen = [&c, delay](int i) {
    return [rounds = c.rounds, i, wait = delay(i)](Firing& f) mutable {
      wait();
      const auto k = static_cast<std::int64_t>(f.index());
      if (k == rounds) return f.end();
      f.emit(0, token(i, k));
    };
  };
  const auto join = [expect, delay](int i, int second, int number) {
    return [expect, i, second, wait = delay(number)](Firing& f) mutable {
      wait();
      if (end_came(f)) return;
      expect(f.input(0), 2 * i, f.index());
      expect(f.input(1), second, f.index());
      f.emit(0, std::move(f.input(0)));
    };
  };
  bodies.pair = [join](int i) { return join(i, 2 * i + 1, 100 + i); };
  bodies.lane = [join](int i) { return join(i, -1, 200 + i); };
  bodies.reduce = [expect, wait = delay(300)](Firing& f) mutable {
    wait();
    if (end_came(f)) return;
    for (int i = 0; i < static_cast<int>(f.inputs().size()); ++i) expect(f.input(i), 2 * i, f.index());
    f.emit(0, std::move(f.input(0)));
  };
  bodies.opt = [wait = delay(301)](Firing& f) mutable {
    wait();
    if (!end_came(f)) f.emit(0, token(-1, static_cast<std::int64_t>(f.index()) + 1));
  };
  PlanBuilder b;
  const Lanes lanes = build_lanes(b, 8, c.capacity, bodies);
  Flow flow(b.plan, b.take_nodes(), {.threads = c.threads, .pin = false, .on_worker_start = {}});
  CHECK(flow.run() == Flow::Outcome::kDone);
  const FlowReport r = flow.report();
  for (const EdgeReport& e : r.edges) {
    CHECK(e.deepest <= c.capacity);
    CHECK(e.put == e.taken + e.left);
  }
  CHECK(r.nodes[lanes.opt].fired == static_cast<std::uint64_t>(c.rounds) + 1);
  return wrong;
}

// Bytes that this process holds in memory.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

// Counts how many of its kind are alive.
struct Counted {
  explicit Counted(std::atomic<int>& count, std::size_t bytes) : live(&count), data(bytes, 'x') { ++*live; }
  ~Counted() { --*live; }
  std::atomic<int>* live;
  std::vector<char> data;
};

}  // namespace

TEST_CASE("flow: lane d at round k holds sample k of streams 2d and 2d+1, for any threads, capacity and delays") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::vector<Case> cases = {{2, 1, 10'000}, {4, 4, 10'000}, {8, 1, 10'000}};
  for (int threads = 1; threads <= 8; ++threads) {
    for (const int capacity : {1, 4}) cases.push_back({threads, capacity, 1'000});
  }
  for (const Case& c : cases) {
    INFO(c.threads << " threads, capacity " << c.capacity);
    CHECK(misplaced(c, seed) == 0);
  }
}

TEST_CASE("flow: a slow node slows its sources down to the generators, and memory stays flat") {
  static constexpr int kStreams = 16, kCapacity = 4, kSamples = 120;
  static constexpr std::size_t kBytes = 64 * 1024;
  std::atomic<int> live{0};
  int most = 0;
  std::int64_t early = 0, late = 0;
  PlanBuilder b;
  const int compute = b.node("compute", Role::kCompute, 0, [&](Firing& f) {
    most = std::max(most, live.load());
    if (f.index() == 30) early = resident_bytes();
    if (f.index() == kSamples - 1) late = resident_bytes();
    if (end_came(f)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  for (int i = 0; i < kStreams; ++i) {
    const int gen = b.node("gen" + std::to_string(i), Role::kSource, 1, [&live](Firing& f) {
      if (f.index() == kSamples) return f.end();
      f.emit(0, Packet::of(std::make_shared<Counted>(live, kBytes)));
    });
    b.connect(gen, compute, {.capacity = kCapacity});
  }
  Flow flow(b.plan, b.take_nodes(), {.threads = 2, .pin = false, .on_worker_start = {}});
  CHECK(flow.run() == Flow::Outcome::kDone);
  CHECK(most > kStreams * kCapacity / 2);     // the sources did run ahead,
  CHECK(most <= kStreams * (kCapacity + 1));  // as far as the edges, and what compute has in hand
#ifndef __SANITIZE_ADDRESS__                  // which keeps freed memory for a while
  CHECK(late - early < 16 * 1024 * 1024);
#endif
  CHECK(live == 0);
  for (const EdgeReport& e : flow.report().edges) CHECK(e.deepest == kCapacity);
}

TEST_CASE("flow: an error in any place and at any time ends the run with that error and leaves nothing alive") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::minstd_rand random(seed);
  for (int trial = 0; trial < 60; ++trial) {
    std::atomic<int> live{0};
    const int threads = 1 + static_cast<int>(random() % 8), capacity = 1 + static_cast<int>(random() % 4);
    const int where = static_cast<int>(random() % 6);
    const std::uint64_t when = random() % 200;
    {
      PlanBuilder b;
      const Body hand_on = [](Firing& f) {
        if (!end_came(f)) f.emit(0, std::move(f.input(0)));
      };
      LaneBodies bodies;
      bodies.gen = [&live](int) {
        return [&live](Firing& f) { f.emit(0, Packet::of(std::make_shared<Counted>(live, 16))); };
      };
      bodies.pair = bodies.lane = [hand_on](int) { return hand_on; };
      bodies.reduce = bodies.opt = hand_on;
      const Lanes l = build_lanes(b, 8, capacity, bodies);
      const int place[] = {l.gen[5], l.pair[2], l.lane[7], l.reduce, l.opt, l.gen[0]};
      b.body(place[where]).body = [when, body = b.body(place[where]).body](Firing& f) {
        if (f.index() == when) throw Error(Exit::kDevice, "planted");
        body(f);
      };
      const std::string id = b.plan.nodes[place[where]].id, type = b.plan.nodes[place[where]].type->name;
      Flow flow(b.plan, b.take_nodes(), {.threads = threads, .pin = false, .on_worker_start = {}});
      CHECK_THROWS_WITH_AS(flow.run(), (id + " (" + type + "), firing " + std::to_string(when) + ": planted").c_str(),
                           Error);
    }
    CHECK(live == 0);
  }
}

TEST_CASE("flow: many short flows with pauses and ends at random places all come to their end") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::minstd_rand random(seed);
  for (int trial = 0; trial < 100; ++trial) {
    const std::int64_t rounds = 1 + random() % 40;
    const std::uint64_t every = 1 + random() % 10;
    const int threads = 1 + static_cast<int>(random() % 4), capacity = 1 + static_cast<int>(random() % 3);
    PlanBuilder b;
    const Body hand_on = [](Firing& f) {
      if (!end_came(f)) f.emit(0, std::move(f.input(0)));
    };
    LaneBodies bodies;
    bodies.gen = [rounds](int i) {
      return [rounds, i](Firing& f) {
        const auto k = static_cast<std::int64_t>(f.index());
        if (k + 1 == rounds) f.end();  // with the last sample, not after it
        f.emit(0, token(i, k));
      };
    };
    bodies.pair = bodies.lane = [hand_on](int) { return hand_on; };
    bodies.reduce = hand_on;
    bodies.opt = [hand_on, every](Firing& f) {
      hand_on(f);
      if (f.index() % every == 0) f.pause();
    };
    const Lanes l = build_lanes(b, 3, capacity, bodies);
    Flow flow(b.plan, b.take_nodes(), {.threads = threads, .pin = false, .on_worker_start = {}});
    std::uint64_t pauses = 0;
    while (flow.run() == Flow::Outcome::kPaused) ++pauses;
    CHECK(flow.report().nodes[l.opt].fired == static_cast<std::uint64_t>(rounds) + 1);
    CHECK(pauses == static_cast<std::uint64_t>(rounds) / every + 1);
  }
}

}  // namespace lanewise
