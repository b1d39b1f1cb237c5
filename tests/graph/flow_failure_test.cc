// How a flow fails: stalls, accounts that do not balance, exceptions in bodies, and being cancelled.
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tests/graph/flow_fixture.h"

namespace lanewise {
namespace {

// A queue that a body waits on, as a source with a reader thread of its own has.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    open_.wait(lock, [this] { return opened_; });
  }
  void open() noexcept {
    {
      const std::lock_guard lock(mutex_);
      opened_ = true;
    }
    open_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  bool opened_ = false;
};

// The body of node `i` throws `what` at firing `at`.
void plant_error(PlanBuilder& b, int i, std::uint64_t at, const std::string& what) {
  b.body(i).body = [body = b.body(i).body, at, what](Firing& f) {
    if (f.index() == at) throw Error(Exit::kData, what);
    body(f);
  };
}

}  // namespace

TEST_CASE("flow: an early end of one stream is a stall that says who waits for whom, ended streams first") {
  PlanBuilder b;
  const int gen2 = b.source("gen2", 200), gen3 = b.source("gen3", 50), pair = b.pass("pair1", Role::kJoin);
  // It waits for a whole pair: the end alone is no reason to end.
  b.body(pair).body = [](Firing& f) {
    if (!f.input(1).is_end()) f.emit(0, std::move(f.input(0)));
  };
  const int lane = b.sink("lane1");
  b.connect(gen2, pair, {.capacity = 4});
  b.connect(gen3, pair, {.capacity = 4});
  b.connect(pair, lane);
  Flow flow(b.plan, b.take_nodes(), threads(2));
  const std::string lines =
      "pair1 waits for gen3 (ended after 50 samples); gen2 -> pair1 holds 4 of 4; lane1 waits for pair1; "
      "gen2 is blocked by pair1";
  CHECK(outcome(flow) == "7 no progress: " + lines);
  CHECK(flow.waiting().size() == 3);
  CHECK(flow.waiting().back() == "gen2 is blocked by pair1");
  int left = 0;
  flow.for_each_left([&left](int edge, const Packet& p) {
    CHECK(edge == 0);
    CHECK(seq(p) == 51 + left++);
  });
  CHECK(left == 4);
  CHECK(outcome(flow) == "70 a flow that is over cannot be run again");
}

TEST_CASE("flow: a node that swallows samples is a stall, and the message stays short however many wait") {
  PlanBuilder b;
  const Lanes l = plain_lanes(b, 24, 100);
  b.body(l.lane[5]).body = [body = b.body(l.lane[5]).body](Firing& f) {
    if (f.index() != 7) body(f);
  };
  Flow flow(b.plan, b.take_nodes(), threads(2));
  const std::string text = outcome(flow);
  INFO(text);
  CHECK(
      text.starts_with("7 no progress: reduce waits for lane5 (fired 8 times, put 7); lane0 -> reduce holds 1 of 2 "
                       "(22 more inputs hold packets); lane0 waits for opt; pair0 -> lane0 holds 2 of 2; "));
  CHECK(text.find("more nodes wait") != std::string::npos);
  CHECK(text.size() < 1000);
}

TEST_CASE(
    "flow: samples lost on the way through a per-sample node are an internal error, absorbed and held ones are not") {
  for (const int kind : {0, 1, 2}) {
    PlanBuilder b;
    const int gen = b.source("gen0", 9), window = b.pass("window0"), sink = b.sink("sink");
    b.body(window).body = [kind](Firing& f) {
      if (end_came(f)) return;
      if (f.index() >= 3) return f.emit(0, std::move(f.input(0)));
      if (kind == 1) f.absorb();
    };
    if (kind == 2) b.body(window).holds = [] { return 3; };
    b.connect(gen, window);
    b.connect(window, sink);
    Flow flow(b.plan, b.take_nodes(), threads(2));
    CHECK(outcome(flow) ==
          (kind > 0 ? "done" : "70 accounts do not balance: window0: 9 samples in, 6 out to sink, 0 absorbed, 0 held"));
    if (kind == 1) CHECK(flow.report().nodes[window].absorbed == 3);
  }
}

TEST_CASE("flow: an exception in any kind of node ends the flow and is told with its node and firing") {
  for (const int n : {1, 2, 4}) {
    for (int kind = 0; kind < 7; ++kind) {
      PlanBuilder b;
      const Lanes l = plain_lanes(b, 4, 200);
      // A tap of the per-sample and sink kinds beside the lanes.
      const int filter = b.pass("filter"), sink = b.sink("sink");
      b.connect(l.gen[0], filter);
      b.connect(filter, sink);
      const int place[] = {l.gen[3], filter, l.pair[1], l.lane[2], l.reduce, l.opt, sink};
      const PlanNode& node = b.plan.nodes[place[kind]];
      plant_error(b, place[kind], 23, "a planted error");
      Flow flow(b.plan, b.take_nodes(), threads(n));
      CHECK(outcome(flow) == "4 " + node.id + " (" + node.type->name + "), firing 23: a planted error");
      CHECK(outcome(flow) == "70 a flow that is over cannot be run again");
    }
  }
}

TEST_CASE("flow: exceptions that are none of ours become internal errors") {
  const std::pair<Body, std::string> kinds[] = {
      {[](Firing&) { throw std::runtime_error("a library's words"); }, "a library's words"},
      {[](Firing&) { throw std::bad_alloc(); }, "out of memory"},
      {[](Firing&) { throw 7; }, "an exception of unknown type"}};
  for (const auto& [body, what] : kinds) {
    PlanBuilder b;
    const int gen = b.source("gen", 5), sink = b.node("sink", Role::kSink, 0, body);
    b.connect(gen, sink);
    Flow flow(b.plan, b.take_nodes(), threads(2));
    CHECK(outcome(flow) == "70 sink (test_sink), firing 0: " + what);
  }
}

TEST_CASE("flow: a later error does not replace the first, and a body that waits is woken") {
  PlanBuilder b;
  Gate first_thrown;  // opened by interrupt(), thus after the first error is kept
  const int silent = b.source("silent", -1), a = b.sink("a");
  b.connect(silent, a);
  b.type(silent).may_wait = true;
  std::atomic<bool> waits{false};
  b.body(silent).body = [&](Firing&) {
    waits = true;
    first_thrown.wait();
    throw std::runtime_error("interrupted");
  };
  b.body(silent).wake = [&] { first_thrown.open(); };
  const int gen = b.source("gen", -1), c = b.sink("c");
  b.connect(gen, c);
  b.body(c).body = [&](Firing& f) {
    if (waits && f.index() >= 5) throw Error(Exit::kGenerator, "the first error");
  };
  Flow flow(b.plan, b.take_nodes(), threads(2));
  const std::string text = outcome(flow);
  CHECK(text.starts_with("5 c (test_sink), firing "));
  CHECK(text.ends_with(": the first error"));
}

TEST_CASE("flow: cancel() from another thread ends a run, also one whose bodies wait") {
  for (const bool waiting : {false, true}) {
    PlanBuilder b;
    Gate gate, began;
    const int gen = b.source("gen", -1), sink = b.sink("sink");
    b.connect(gen, sink);
    b.body(sink).body = [&](Firing&) {
      began.open();
      if (waiting) gate.wait();
    };
    b.body(sink).wake = [&] { gate.open(); };
    Flow flow(b.plan, b.take_nodes(), threads(2));
    std::jthread other([&] {
      began.wait();
      flow.cancel(Exit::kStopped, "stopped on request");
      flow.cancel(Exit::kInternal, "too late");
    });
    CHECK(outcome(flow) == "11 stopped on request");
  }
}

TEST_CASE("flow: cancel() before a run, or while it is paused, ends the next one at once") {
  PlanBuilder b;
  const int gen = b.source("gen", 50), sink = b.sink("sink", [](Firing&f) {
    if (f.index() == 10) f.pause();
  });
  b.connect(gen, sink);
  Flow flow(b.plan, b.take_nodes(), threads(2));
  CHECK(outcome(flow) == "paused");
  flow.cancel(Exit::kStopped, "stopped on request");
  CHECK(outcome(flow) == "11 stopped on request");
  CHECK(flow.report().nodes[sink].fired == 11);
}

TEST_CASE("flow: a node without an initial packet cannot close a cycle") {
  PlanBuilder b;
  const int lane = b.pass("lane"), opt = b.pass("opt");
  b.connect(lane, opt);
  b.connect(opt, lane, {.initial = 1});
  CHECK_THROWS_WITH_AS(Flow(b.plan, b.take_nodes(), threads(1)),
                       "this node has no initial packet to start a cycle with", Error);
}

TEST_CASE("flow: a worker that cannot start ends the run") {
  PlanBuilder b;
  const int gen = b.source("gen", 10), sink = b.sink("sink");
  b.connect(gen, sink);
  Flow flow(b.plan, b.take_nodes(),
            {.threads = 1, .pin = false, .on_worker_start = [] { throw std::runtime_error("no such setting"); }});
  CHECK(outcome(flow) == "70 a worker could not start: no such setting");
}

}  // namespace lanewise
