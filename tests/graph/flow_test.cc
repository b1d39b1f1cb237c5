// Flows on oneTBB: how they run, pause, end and report. Failures: flow_failure_test.cc; under load:
// flow_stress_test.cc.
#include "graph/flow.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/graph/flow_fixture.h"

namespace lanewise {

using std::chrono::milliseconds;

TEST_CASE("flow: a chain runs to its end on one thread with capacity 1 and its accounts balance") {
  PlanBuilder b;
  const int gen = b.source("gen", 1000), norm = b.pass("norm"), sink = b.sink("sink");
  b.connect(gen, norm, {.capacity = 1});
  b.connect(norm, sink, {.capacity = 1});
  Flow flow(b.plan, b.take_nodes(), threads(1));
  CHECK(outcome(flow) == "done");
  const FlowReport r = flow.report();
  for (const EdgeReport& e : r.edges) {
    CHECK(e.put == 1001);
    CHECK(e.taken == 1001);
    CHECK(e.left == 0);
    CHECK(e.deepest == 1);
  }
  CHECK(r.edges[0].from == "gen");
  CHECK(r.edges[0].to == "norm");
  CHECK(r.nodes[sink].ended);
  CHECK(r.nodes[norm].type == "test_per_sample");
  CHECK(r.seconds > 0);
}

TEST_CASE("flow: the shares of a node sum to one, and a slow node blocks its source") {
  PlanBuilder b;
  const int gen = b.source("gen", 60),
            sink = b.sink("sink", [](Firing&) { std::this_thread::sleep_for(milliseconds(1)); });
  const int idle = b.node("idle", Role::kJoin, 1, [](Firing&) {}), never = b.sink("never");
  b.connect(gen, sink);
  b.connect(gen, idle);
  b.connect(idle, never);
  b.body(idle).body = [](Firing& f) {
    if (f.input(0).is_end()) f.finish();
  };
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "done");
  const FlowReport r = flow.report();
  for (const int i : {gen, sink, idle})
    CHECK(r.nodes[i].busy + r.nodes[i].starved + r.nodes[i].blocked == doctest::Approx(1));
  CHECK(r.nodes[sink].busy_s >= 0.06);  // sixty times a millisecond at least
  CHECK(r.edges[0].blocked_s > 0);
  CHECK(r.nodes[gen].blocked_s == doctest::Approx(r.edges[0].blocked_s + r.edges[1].blocked_s));
  CHECK(r.nodes[never].busy + r.nodes[never].starved + r.nodes[never].blocked == 0);
}

TEST_CASE("flow: reports name the port of an output that is not the first") {
  PlanBuilder b;
  const int gen = b.node("lane", Role::kSource, 2, [](Firing& f) { f.end(); });
  const int first = b.sink("first"), second = b.sink("second");
  b.connect(gen, second, {.port = 1});
  b.connect(gen, first);
  Flow flow(b.plan, b.take_nodes(), threads(1));
  CHECK(outcome(flow) == "done");
  CHECK(flow.report().edges[0].from == "lane.out1");
  CHECK(flow.report().edges[1].from == "lane");
}

TEST_CASE("flow: an item may retire on either of two branches and every one is accounted for") {
  PlanBuilder b;
  const int gen = b.source("gen", 100);
  const int branch = b.node("branch", Role::kJoin, 2, [](Firing& f) {
    if (!end_came(f)) f.emit(f.index() % 2, std::move(f.input(0)));
  });
  std::atomic<int> trained{0}, skipped{0};
  const int train = b.sink("train", [&trained](Firing&) { ++trained; });
  const int skip = b.sink("skip", [&skipped](Firing&) { ++skipped; });
  b.connect(gen, branch, {.capacity = 4});
  b.connect(branch, train, {.capacity = 4});
  b.connect(branch, skip, {.capacity = 4, .port = 1});
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "done");
  CHECK(trained == 50);
  CHECK(skipped == 50);
}

TEST_CASE("flow: a pause rests the whole graph with what was emitted held back") {
  for (const int n : {1, 2, 4}) {
    PlanBuilder b;
    const Lanes l = plain_lanes(b, 4, 30);
    std::atomic<int> lanes_fired{0};
    for (const int lane : l.lane) {
      b.body(lane).body = [&lanes_fired, body = b.body(lane).body](Firing& f) {
        ++lanes_fired;
        body(f);
      };
    }
    b.body(l.opt).body = [body = b.body(l.opt).body](Firing& f) {
      body(f);
      if (f.index() % 10 == 9) f.pause();
    };
    Flow flow(b.plan, b.take_nodes(), threads(n));
    for (int round = 10; round <= 30; round += 10) {
      CHECK(outcome(flow) == "paused");
      CHECK(lanes_fired == 4 * round);  // no lane has seen the weights that were held back
      CHECK(flow.report().nodes[l.opt].fired == static_cast<std::uint64_t>(round));
    }
    CHECK(outcome(flow) == "done");
  }
}

TEST_CASE("flow: time before a run and between two runs counts for nobody's wait") {
  PlanBuilder b;
  const int gen = b.source("gen", 20), sink = b.sink("sink", [](Firing&f) {
    if (f.index() == 10) f.pause();
  });
  b.connect(gen, sink);
  const auto begin = std::chrono::steady_clock::now();
  Flow flow(b.plan, b.take_nodes(), threads(1));
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(outcome(flow) == "paused");
  const double ran = flow.report().seconds;
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(flow.report().seconds == ran);
  CHECK(outcome(flow) == "done");
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const FlowReport r = flow.report();
  CHECK(r.seconds <= passed - 0.1);
  for (const int i : {gen, sink}) CHECK(r.nodes[i].busy_s + r.nodes[i].starved_s + r.nodes[i].blocked_s <= r.seconds);
}

TEST_CASE("flow: a finished flow is done although packets are left, and they can be looked at") {
  for (const int n : {1, 2}) {
    PlanBuilder b;
    const Lanes l = plain_lanes(b, 2, -1);
    b.body(l.opt).body = [body = b.body(l.opt).body](Firing& f) {
      if (f.index() == 9) return f.finish();
      body(f);
    };
    Flow flow(b.plan, b.take_nodes(), threads(n));
    CHECK(outcome(flow) == "done");
    std::vector<std::string> left(b.plan.edges.size());
    flow.for_each_left([&left](int edge, const Packet& p) { left[edge] += std::to_string(seq(p)) + " "; });
    // Ten rounds are used; each stream has two samples before its pair and two before its lane.
    for (int i = 0; i < 4; ++i) CHECK(left[i] == "12 13 ");
    const FlowReport r = flow.report();
    for (const EdgeReport& e : r.edges) CHECK(e.put == e.taken + e.left);
    CHECK(r.nodes[l.opt].fired == 10);
  }
}

TEST_CASE("flow: finish() and pause() in one firing pause first") {
  PlanBuilder b;
  const int gen = b.source("gen", -1), once = b.pass("once"), sink = b.sink("sink");
  b.connect(gen, once);
  b.connect(once, sink);
  int seen = 0;
  b.body(sink).body = [&seen](Firing& f) { seen += !f.input(0).is_end(); };
  b.body(once).body = [](Firing& f) {
    f.emit(0, std::move(f.input(0)));
    if (f.index() < 4) return;
    f.pause();
    f.finish();
  };
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "paused");
  CHECK(seen == 4);
  CHECK(outcome(flow) == "done");
  CHECK(seen == 5);
  CHECK(flow.report().nodes[once].fired == 5);  // it has finished: what comes is left
}

TEST_CASE("flow: a feedback edge starts with the packets of its producer and may hold as many as its capacity") {
  PlanBuilder b;
  const int gen = b.source("gen", 100), lane = b.pass("lane", Role::kCompute), opt = b.pass("opt", Role::kOptimizer);
  std::string weights;
  b.body(lane).body = [&weights](Firing& f) {
    if (end_came(f)) return;
    if (f.index() < 4) weights += std::to_string(seq(f.input(1))) + " ";
    f.emit(0, std::move(f.input(0)));
  };
  b.body(opt).start = [k = 0](std::size_t port) mutable { return token(static_cast<int>(port), -2 + k++); };
  b.connect(gen, lane);
  b.connect(opt, lane, {.capacity = 2, .initial = 2});
  b.connect(lane, opt);
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "done");
  CHECK(weights == "-2 -1 0 1 ");
  CHECK(flow.report().edges[1].deepest == 2);
}

TEST_CASE("flow: a second flow runs on the same thread while the first is paused") {
  for (const int n : {1, 2}) {
    PlanBuilder b;
    const Lanes l = plain_lanes(b, 4, 40);
    b.body(l.opt).body = [body = b.body(l.opt).body](Firing& f) {
      body(f);
      if (f.index() % 8 == 7) f.pause();
    };
    Flow flow(b.plan, b.take_nodes(), threads(n));
    int evaluations = 0;
    while (flow.run() == Flow::Outcome::kPaused) {
      PlanBuilder inner;
      const int gen = inner.source("gen", 100), score = inner.sink("score");
      inner.connect(gen, score);
      Flow evaluation(inner.plan, inner.take_nodes(), threads(3 - n));
      CHECK(outcome(evaluation) == "done");
      CHECK(evaluation.report().nodes[score].fired == 101);
      ++evaluations;
    }
    CHECK(evaluations == 5);
    CHECK(flow.report().nodes[l.opt].fired == 41);
  }
}

TEST_CASE("flow: each worker is announced before it fires, and a pinned run gives the caller its cores back") {
  cpu_set_t before, during, after;
  CPU_ZERO(&during);
  sched_getaffinity(0, sizeof before, &before);
  PlanBuilder b;
  std::mutex mutex;
  std::set<std::thread::id> started, unknown;
  const int gen = b.source("gen", 300), sink = b.sink("sink");
  b.connect(gen, sink);
  const std::thread::id caller = std::this_thread::get_id();
  b.body(sink).body = [&](Firing& f) {
    const std::lock_guard lock(mutex);
    if (started.count(std::this_thread::get_id()) == 0) unknown.insert(std::this_thread::get_id());
    if (std::this_thread::get_id() == caller) sched_getaffinity(0, sizeof during, &during);
    if (f.input(0).is_end()) f.end();
  };
  const auto start = [&] {
    const std::lock_guard lock(mutex);
    started.insert(std::this_thread::get_id());
  };
  {
    Flow flow(b.plan, b.take_nodes(), {.threads = 1, .pin = true, .on_worker_start = start});
    CHECK(outcome(flow) == "done");
  }
  sched_getaffinity(0, sizeof after, &after);
  CHECK(unknown.empty());
  CHECK(started == std::set<std::thread::id>{caller});
  CHECK(CPU_COUNT(&during) == 1);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("flow: as many threads as asked for take part, also more than there are cores") {
  PlanBuilder b;
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, most = 0;
  for (int i = 0; i < kThreads; ++i) {
    const int gen = b.source("gen" + std::to_string(i), 1), sink = b.sink("sink" + std::to_string(i));
    b.connect(gen, sink);
    b.type(sink).may_wait = true;
    b.body(sink).body = [&](Firing& f) {  // each waits for all, up to a time that only a failure needs
      std::unique_lock lock(mutex);
      if (f.index() == 0) most = std::max(most, ++inside);
      changed.notify_all();
      changed.wait_for(lock, std::chrono::seconds(10), [&] { return most == kThreads; });
      if (f.input(0).is_end()) f.end();
    };
  }
  Flow flow(b.plan, b.take_nodes(), threads(kThreads));
  CHECK(outcome(flow) == "done");
  CHECK(most == kThreads);
}

TEST_CASE("flow: 512 lanes feed one reduction, and one optimizer feeds 512 lanes") {
  PlanBuilder b;
  const Lanes l = plain_lanes(b, 512, 40);
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "done");
  const FlowReport r = flow.report();
  CHECK(r.nodes[l.reduce].fired == 41);
  for (const EdgeReport& e : r.edges) CHECK(e.put - (e.from == "opt") == 41);
}

}  // namespace lanewise
