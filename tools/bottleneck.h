// What bounds a round, and how long it would take were that free: worked out from how long each node is at work in one.
//
//   B = the largest of  pace                of each node beside the lanes: it works on one packet at a time
//                       max(l, Σ l / P) + r  the circle that every round goes: the lanes (l the longest), on P threads,
//                                            then reduction, clip and optimizer (r together)
//                       Σ work / P           P threads do all the work
//
//   round = B + rest. No bound explains the rest: handing over between threads, or other programs on the machine.
//
// Were a group of nodes free, their work and pace 0, a round would take B' + rest; with threads to spare (P = ∞)
// B'' + rest; without the rest, B. The bottleneck is what saves most.
#pragma once

#include <string>
#include <vector>

namespace lanewise {

// Of one node, a round.
struct NodeWork {
  enum class Place { kBeside, kLane, kAfterLanes };
  std::string id, group;  // "gen3", "gen"
  Place place = Place::kBeside;
  double work = 0;  // µs on a thread
  double pace = 0;  // µs, at least `work`: of a program's source also what it waits for the program
};

struct Bottleneck {
  enum class Kind { kNodes, kThreads, kRest };
  Kind kind = Kind::kRest;
  std::string name;            // of the group; "threads", "rest"
  std::string busiest;         // node of the group whose pace is its share of a round; "": all of them on the threads
  bool waits = false;          // `busiest` waits for its program more than it works
  int nodes = 0, threads = 0;  // of the group; of the flow
  double share = 0;            // of a round that its own bound takes, at most 1
  double round = 0, free = 0;  // µs: measured, and were it free
  double times_as_fast() const { return free > 0 ? round / free : 1; }
};

// All that could be free, what saves most first; never empty. Requires: threads >= 1, round > 0.
std::vector<Bottleneck> find_bottlenecks(const std::vector<NodeWork>& nodes, int threads, double round);

// "gen bounds a round: gen3 is busy 97 % of the time; were gen free, a round would take 41 µs instead of 120 (2.9 times
// as fast)."
std::string sentence(const Bottleneck& bottleneck);

// A time in µs, three digits of it.
std::string microseconds(double us);

}  // namespace lanewise
