// Stages that are fed from outside, on plain threads and on oneTBB.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "tests/graph/thread_pool_flow.h"

namespace lanewise {
namespace {

using Millis = std::chrono::milliseconds;

class TbbFlow {
 public:
  TbbFlow(PlanBuilder& b, int threads) : flow_(b.plan, b.take_nodes(), {.threads = threads}) {}
  Flow::Outcome run() { return flow_.run(); }
  void stop(Exit exit, const std::string& why) { flow_.cancel(exit, why); }
  std::vector<std::string> hungry() const { return flow_.hungry(); }
  std::vector<std::string> waiting() const { return flow_.waiting(); }
  FlowReport report() const { return flow_.report(); }

 private:
  Flow flow_;
};

// A source that sends what another thread gives it, and ends after so many.
class Outside {
 public:
  Outside(PlanBuilder& b, const std::string& id, std::int64_t count) : count_(count) {
    index_ = b.node(id, Role::kSource, 1, [this](Firing& f) {
      ++fired_;
      if (static_cast<std::int64_t>(f.index()) == count_) return f.end();
      f.emit(0, token(0, static_cast<std::int64_t>(f.index())));
    });
    b.type(index_).fed = true;
    b.body(index_).feeds = [this](Feed* feed) {
      const std::lock_guard lock(mutex_);
      feed_ = feed;
    };
  }
  int index() const { return index_; }
  std::int64_t fired() const { return fired_; }

  // One thing more. False: the flow is over.
  bool give() {
    const std::lock_guard lock(mutex_);
    if (feed_ == nullptr) return false;
    feed_->came();
    return true;
  }

 private:
  const std::int64_t count_;
  int index_ = 0;
  std::mutex mutex_;
  Feed* feed_ = nullptr;
  std::atomic<std::int64_t> fired_{0};
};

template <class Run>
std::string outcome(Run& flow) {
  try {
    return flow.run() == Flow::Outcome::kDone ? "done" : "paused";
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.exit())) + " " + e.what();
  }
}

template <class F>
bool soon(const F& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!holds() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(Millis(1));
  return holds();
}

// oneTBB is not instrumented for ThreadSanitizer.
#ifdef __SANITIZE_THREAD__
#define FLOWS ThreadPoolFlow
#else
#define FLOWS ThreadPoolFlow, TbbFlow
#endif

}  // namespace

TEST_CASE_TEMPLATE("fed: what other threads give at odd times all arrives, in order and bounded, over pauses too", Run,
                   FLOWS) {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  for (const int threads : {1, 2, 4}) {
    constexpr std::int64_t kCount = 2000;
    PlanBuilder b;
    Outside left(b, "left", kCount), right(b, "right", kCount);
    std::int64_t taken = 0;
    int wrong = 0;
    const int join = b.node("join", Role::kJoin, 1, [&](Firing& f) {
      if (end_came(f)) return;
      for (Packet& p : f.inputs()) wrong += p.get<Token>().seq != static_cast<std::int64_t>(f.index());
      f.emit(0, std::move(f.input(0)));
      if (f.index() % 97 == 96) f.pause();
    });
    const int sink = b.sink("sink", [&](Firing&) { ++taken; });
    b.connect(left.index(), join);
    b.connect(right.index(), join);
    b.connect(join, sink);
    Run flow(b, threads);
    std::vector<std::jthread> givers;
    for (Outside* const source : {&left, &right}) {
      givers.emplace_back([source, seed] {
        std::mt19937 random(seed);
        for (std::int64_t i = 0; i <= kCount; ++i) {
          if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          source->give();
        }
      });
    }
    int pauses = 0;
    std::string how;
    while ((how = outcome(flow)) == "paused") ++pauses;
    CHECK(how == "done");
    CHECK(pauses == kCount / 97);
    CHECK(taken == kCount);
    CHECK(wrong == 0);
    for (const EdgeReport& e : flow.report().edges) CHECK(e.deepest <= e.capacity);
  }
}

TEST_CASE_TEMPLATE("fed: a flow waits for what comes from outside, says so, and can be ended meanwhile", Run, FLOWS) {
  PlanBuilder b;
  Outside outside(b, "outside", 1000);
  std::atomic<int> taken = 0;
  const int sink = b.sink("sink", [&](Firing&) { ++taken; });
  b.connect(outside.index(), sink);
  Run flow(b, 2);
  std::string how;
  std::jthread runs([&] { how = outcome(flow); });
  REQUIRE(soon([&] { return flow.hungry() == std::vector<std::string>{"outside"}; }));
  CHECK(flow.waiting().front() == "outside waits for what comes from outside");
  for (int i = 0; i < 3; ++i) outside.give();
  CHECK(soon([&] { return taken == 3; }));
  std::this_thread::sleep_for(Millis(20));
  CHECK(how == "");
  flow.stop(Exit::kStopped, "on request");
  runs.join();
  CHECK(how == "11 on request");
  CHECK(outside.fired() == 3);
  CHECK(flow.report().nodes[0].starved_s > 0);
  outside.give();
  CHECK(outside.fired() == 3);
}

TEST_CASE_TEMPLATE("fed: an error anywhere ends a flow that waits for what never comes", Run, FLOWS) {
  PlanBuilder b;
  Outside outside(b, "outside", 10), silent(b, "silent", 10);
  const int first = b.sink("first", [](Firing&) { throw Error(Exit::kData, "thrown"); });
  const int second = b.sink("second");
  b.connect(outside.index(), first);
  b.connect(silent.index(), second);
  Run flow(b, 2);
  std::jthread gives([&] {
    std::this_thread::sleep_for(Millis(5));
    outside.give();
  });
  CHECK(outcome(flow) == "4 first (test_sink), firing 0: thrown");
}

TEST_CASE_TEMPLATE("fed: what was given before the flow runs, and while it rests, is taken when it runs", Run, FLOWS) {
  PlanBuilder b;
  Outside outside(b, "outside", 6);
  int taken = 0;
  const int sink = b.node("sink", Role::kSink, 0, [&](Firing& f) {
    if (end_came(f)) return;
    ++taken;
    if (taken % 2 == 0) f.pause();
  });
  b.connect(outside.index(), sink, {.capacity = 8});
  std::optional<Run> flow;
  flow.emplace(b, 2);
  for (int i = 0; i < 2; ++i) outside.give();
  CHECK(outcome(*flow) == "paused");
  CHECK(taken == 2);
  for (int i = 0; i < 2; ++i) outside.give();
  CHECK(outcome(*flow) == "paused");
  CHECK(taken == 4);
  for (int i = 0; i < 3; ++i) outside.give();
  CHECK(outcome(*flow) == "paused");
  CHECK(outcome(*flow) == "done");
  CHECK(taken == 6);
  flow.reset();
  CHECK_FALSE(outside.give());
}

}  // namespace lanewise
