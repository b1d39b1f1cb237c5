// Stages, edges and the core of a flow on plain threads; tests/graph/flow_test.cc has the same on oneTBB.
#include "graph/stage.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/graph/thread_pool_flow.h"

namespace lanewise {
namespace {

// What a run says when it fails, or how it ended.
std::string outcome(ThreadPoolFlow& flow) {
  try {
    return flow.run() == Flow::Outcome::kDone ? "done" : "paused";
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.exit())) + " " + e.what();
  }
}

// Lanes whose every body checks stream and order of what comes, for `rounds` rounds.
struct Checked {
  std::atomic<int> wrong{0};
  std::int64_t steps = 0;

  Lanes build(PlanBuilder& b, int lanes, int capacity, std::int64_t rounds) {
    const auto expect = [this](const Packet& p, int stream, const Firing& f) {
      const Token& t = p.get<Token>();
      if (t.stream != stream || t.seq != static_cast<std::int64_t>(f.index())) ++wrong;
    };
    LaneBodies bodies;
    bodies.gen = [rounds](int i) {
      return [rounds, i](Firing& f) {
        const auto seq = static_cast<std::int64_t>(f.index());
        if (seq == rounds) return f.end();
        f.emit(0, token(i, seq));
      };
    };
    bodies.pair = [expect](int i) {
      return [expect, i](Firing& f) {
        if (end_came(f)) return;
        expect(f.input(0), 2 * i, f);
        expect(f.input(1), 2 * i + 1, f);
        f.emit(0, std::move(f.input(0)));
      };
    };
    bodies.lane = [expect](int i) {
      return [expect, i](Firing& f) {
        if (end_came(f)) return;
        expect(f.input(0), 2 * i, f);
        expect(f.input(1), -1, f);
        f.emit(0, std::move(f.input(0)));
      };
    };
    bodies.reduce = [expect](Firing& f) {
      if (end_came(f)) return;
      for (std::size_t i = 0; i < f.inputs().size(); ++i) expect(f.input(i), 2 * static_cast<int>(i), f);
      f.emit(0, std::move(f.input(0)));
    };
    bodies.opt = [this](Firing& f) {
      if (end_came(f)) return;
      ++steps;
      f.emit(0, token(-1, f.input(0).get<Token>().seq + 1));
    };
    return build_lanes(b, lanes, capacity, bodies);
  }
};

}  // namespace

TEST_CASE("stage: lanes with feedback keep order and identity on one to four threads") {
  for (const int threads : {1, 2, 4}) {
    for (const int capacity : {1, 2, 4}) {
      PlanBuilder b;
      Checked checked;
      checked.build(b, 4, capacity, 300);
      ThreadPoolFlow flow(b, threads);
      CHECK(outcome(flow) == "done");
      CHECK(checked.wrong == 0);
      CHECK(checked.steps == 300);
      for (const EdgeReport& e : flow.report().edges) CHECK(e.deepest <= capacity);
    }
  }
}

TEST_CASE("stage: a node fires only when every input holds a packet and every output has room") {
  PlanBuilder b;
  const int a = b.source("a", 100), c = b.source("c", 3);
  const int join = b.pass("join", Role::kJoin), slow = b.sink("slow"), fast = b.sink("fast");
  b.connect(a, join, {.capacity = 4});
  b.connect(c, join, {.capacity = 4});
  b.connect(join, slow, {.capacity = 1});
  b.connect(join, fast, {.capacity = 4});
  b.body(slow).body = [](Firing& f) { CHECK_FALSE(f.index() > 3); };
  b.body(join).body = [](Firing& f) {
    if (!f.input(1).is_end()) f.emit(0, std::move(f.input(0)));
  };
  ThreadPoolFlow flow(b, 2);
  CHECK(outcome(flow) ==
        "7 no progress: join waits for c (ended after 3 samples); a -> join holds 4 of 4; slow waits for join; "
        "fast waits for join; a is blocked by join");
  const FlowReport r = flow.report();
  CHECK(r.nodes[a].fired == 8);  // the four that join took, and the four on the edge
  CHECK(r.nodes[join].fired == 4);
  CHECK(r.edges[0].left == 4);
}

TEST_CASE("stage: the end waits for room, never exceeds the capacity and arrives last") {
  for (const int threads : {1, 2}) {
    PlanBuilder b;
    const int gen = b.source("gen", 50), sink = b.sink("sink");
    std::string seen;
    b.body(sink).body = [&seen](Firing& f) {
      if (f.input(0).is_end()) {
        seen += "end";
        f.end();
      } else if (f.index() % 10 == 0) {
        seen += std::to_string(f.input(0).get<Token>().seq) + " ";
      }
    };
    b.connect(gen, sink, {.capacity = 1});
    ThreadPoolFlow flow(b, threads);
    CHECK(outcome(flow) == "done");
    CHECK(seen == "0 10 20 30 40 end");
    const EdgeReport e = flow.report().edges[0];
    CHECK(e.deepest == 1);
    CHECK(e.put == 51);
    CHECK(e.taken == 51);
  }
}

TEST_CASE("stage: what an output emits goes to every edge of its port, and a port not emitted stays empty") {
  PlanBuilder b;
  const int gen = b.node("gen", Role::kSource, 2, [](Firing& f) {
    if (f.index() == 10) return f.end();
    f.emit(0, token(0, static_cast<std::int64_t>(f.index())));
    if (f.index() % 3 == 0) f.emit(1, token(1, static_cast<std::int64_t>(f.index())));
  });
  std::string seen[3];
  for (int i = 0; i < 3; ++i) {
    const int sink = b.sink("sink" + std::to_string(i),
                            [&seen, i](Firing& f) { seen[i] += std::to_string(f.input(0).get<Token>().seq); });
    b.connect(gen, sink, {.capacity = 1 + i, .port = i / 2});
  }
  ThreadPoolFlow flow(b, 3);
  CHECK(outcome(flow) == "done");
  CHECK(seen[0] == "0123456789");
  CHECK(seen[1] == "0123456789");
  CHECK(seen[2] == "0369");
}

TEST_CASE("stage: a pause holds what was emitted until the next run") {
  for (const int threads : {1, 3}) {
    PlanBuilder b;
    const int gen = b.source("gen", 9), pass = b.pass("pass"), sink = b.sink("sink");
    std::string seen;
    b.body(pass).body = [](Firing& f) {
      if (end_came(f)) return;
      f.emit(0, std::move(f.input(0)));
      if (f.index() % 4 == 3) f.pause();
    };
    b.body(sink).body = [&seen](Firing& f) {
      if (!end_came(f)) seen += std::to_string(f.input(0).get<Token>().seq);
    };
    b.connect(gen, pass);
    b.connect(pass, sink);
    ThreadPoolFlow flow(b, threads);
    CHECK(outcome(flow) == "paused");
    CHECK(seen == "012");
    CHECK(outcome(flow) == "paused");
    CHECK(seen == "0123456");
    CHECK(outcome(flow) == "done");
    CHECK(seen == "012345678");
    CHECK(outcome(flow) == "70 a flow that is over cannot be run again");
  }
}

TEST_CASE("stage: the first error stops the flow, names node and firing, and keeps its exit code") {
  for (const int threads : {1, 2, 4}) {
    PlanBuilder b;
    Checked checked;
    const Lanes lanes = checked.build(b, 4, 2, 1000);
    b.body(lanes.lane[2]).body = [body = b.body(lanes.lane[2]).body](Firing& f) {
      if (f.index() == 57) throw Error(Exit::kNonFinite, "the loss is nan");
      body(f);
    };
    ThreadPoolFlow flow(b, threads);
    CHECK(outcome(flow) == "10 lane2 (test_compute), firing 57: the loss is nan");
    CHECK(outcome(flow) == "70 a flow that is over cannot be run again");
    CHECK(checked.wrong == 0);
  }
}

TEST_CASE("stage: independent endless parts of a graph all get their turn") {
  for (const int threads : {1, 2}) {
    PlanBuilder b;
    std::atomic<int> served{0};
    for (int i = 0; i < 5; ++i) {
      const int gen = b.source("gen" + std::to_string(i), -1, i);
      const int sink = b.sink("sink" + std::to_string(i), [&served](Firing& f) {
        if (f.index() == 200 && ++served == 5) throw Error(Exit::kStopped, "all were served");
      });
      b.connect(gen, sink);
    }
    ThreadPoolFlow flow(b, threads);
    CHECK(outcome(flow).ends_with("all were served"));
  }
}

TEST_CASE("stage: a flow that pauses or finishes in one part keeps back the endless sources of another") {
  for (const int threads : {1, 2}) {
    PlanBuilder b;
    Checked checked;
    const Lanes lanes = checked.build(b, 2, 2, -1);
    b.body(lanes.opt).body = [body = b.body(lanes.opt).body](Firing& f) {
      if (f.index() == 40) return f.finish();  // emits no more weights
      body(f);
      if (f.index() == 20) f.pause();
    };
    const int gen = b.source("other", -1), sink = b.sink("console");
    b.connect(gen, sink);
    ThreadPoolFlow flow(b, threads);
    CHECK(outcome(flow) == "paused");
    const std::uint64_t before = flow.stages()[sink].fired();
    CHECK(outcome(flow) == "done");
    CHECK(flow.stages()[sink].fired() >= before);
    CHECK(checked.steps == 40);
    CHECK(checked.wrong == 0);
  }
}

TEST_CASE("stage: reports may be read while the flow runs") {
  PlanBuilder b;
  Checked checked;
  checked.build(b, 4, 2, 2000);
  ThreadPoolFlow flow(b, 2);
  std::jthread reader([&flow](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const EdgeReport& e : flow.report().edges) {
        if (e.deepest > e.capacity || e.left > static_cast<std::uint64_t>(e.capacity))
          flow.stop(Exit::kInternal, "too deep");
      }
      flow.waiting();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  CHECK(outcome(flow) == "done");
}

}  // namespace lanewise
