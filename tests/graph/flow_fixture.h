// What the tests of whole flows share.
#pragma once

#include <string>

#include "graph/flow.h"
#include "tests/graph/plan_builder.h"

namespace lanewise {

inline FlowOptions threads(int n) { return {.threads = n, .pin = false, .on_worker_start = {}}; }

// How a run ended, or "<exit code> <message>".
inline std::string outcome(Flow& flow) {
  try {
    return flow.run() == Flow::Outcome::kDone ? "done" : "paused";
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.exit())) + " " + e.what();
  }
}

inline std::int64_t seq(const Packet& p) { return p.get<Token>().seq; }

// Lanes of plain bodies: sources of `rounds` tokens, joins and lanes that hand on, an optimizer that counts.
inline Lanes plain_lanes(PlanBuilder& b, int lanes, std::int64_t rounds, int capacity = 2) {
  const Body hand_on = [](Firing& f) {
    if (!end_came(f)) f.emit(0, std::move(f.input(0)));
  };
  LaneBodies bodies;
  bodies.gen = [rounds](int i) {
    return [rounds, i](Firing& f) {
      const auto n = static_cast<std::int64_t>(f.index());
      if (n == rounds) return f.end();
      f.emit(0, token(i, n));
    };
  };
  bodies.pair = bodies.lane = [hand_on](int) { return hand_on; };
  bodies.reduce = hand_on;
  bodies.opt = hand_on;
  return build_lanes(b, lanes, capacity, bodies);
}

}  // namespace lanewise
