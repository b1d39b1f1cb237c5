// The Profiler looks on while a run trains, keeps what its counters show turn by turn, and ends it when it has seen
// enough.
//
//   warm-up | turn 0 | turn 1 | … | turn n-1
//
// A turn begins and ends between two steps, when no lane computes: what it has seen of lanes, reduction and optimizer
// are whole rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/edge.h"
#include "graph/flow.h"
#include "graph/plan.h"

namespace lanewise {

// How long the forward of each lane took, its loss included: a service that lanes on the host keep up to date where
// there is one. A normal run has none and reads no clock.
class LaneTimes {
 public:
  explicit LaneTimes(std::size_t lanes) : forward_(lanes) {}
  void add_forward(int lane, Tick took) { bump(forward_[static_cast<std::size_t>(lane)], took); }  // the lane's firing
  std::vector<double> forward_s() const;  // by lane; any thread

 private:
  std::vector<std::atomic<Tick>> forward_;
};

// What came to pass in a turn.
struct Turn {
  double seconds = 0;
  std::uint64_t steps = 0, rounds = 0, samples = 0;  // samples: those trained
  std::vector<NodeReport> nodes;                     // as in the plan; shares and counts are of the turn
  std::vector<EdgeReport> edges;                     // starved_s and blocked_s are of the turn
  std::vector<double> forward_s;                     // by lane; 0 for lanes on GPUs
};

class Profiler {
 public:
  struct Length {
    std::optional<std::uint64_t> steps;  // of a turn; absent: `seconds` count
    double seconds = 0.5;                // of a turn, which has one step at least
    int turns = 5;
  };
  // `plan`: that is trained, of one process.
  Profiler(const Plan& plan, Length length);

  // For the Trainer: what its lanes are to keep, the flow that trains, and each step that it has applied, on the
  // optimizer's thread. `samples`: trained so far. True: it has seen enough.
  LaneTimes& lane_times() { return lane_times_; }
  void begin(const Flow& flow) { flow_ = &flow; }
  bool after_step(std::uint64_t samples);

  // After the run. Fewer than were asked for where it ended before.
  const std::vector<Turn>& turns() const { return turns_; }
  bool complete() const { return static_cast<int>(turns_.size()) == length_.turns; }

 private:
  struct Moment {
    Tick at = 0;
    std::uint64_t steps = 0, samples = 0;
    FlowReport flow;
    std::vector<double> forward_s;
  };
  Moment moment(Tick at, std::uint64_t samples) const;
  Turn between(const Moment& begin, const Moment& end) const;

  const Length length_;
  const std::size_t reduce_;  // the node of the one reduction
  LaneTimes lane_times_;
  const Flow* flow_ = nullptr;
  std::uint64_t steps_ = 0;  // of the run
  bool warm_ = false;
  Moment begin_;  // of the turn, or of the warm-up, in progress
  std::vector<Turn> turns_;
};

}  // namespace lanewise
