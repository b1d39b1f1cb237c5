// DeviceTraining is a training whose lanes are on GPUs: their queues, the reduction between them, and the step.
//
//   lane queues:    copy, forward, loss, backward ─┐                                          ┌─> next round
//   domain queues:                                 └─> reduction ─> clip ─> optimizer, states ─┘
//
// The host issues all of this without waiting for it. What a round came to reaches it through host memory and is asked
// for a round later; until then the device itself holds back a step that must not be applied: weights, optimizer and
// recurrent state stay as they were. Not verified on a GPU; emulated GPUs (runtime/devices/emulated.h) go through all
// of it.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "runtime/devices/device_lane.h"
#include "runtime/devices/device_reduction.h"
#include "runtime/lane_table.h"
#include "runtime/optimizer_ops.h"

namespace lanewise {

class DeviceTraining {
 public:
  struct Parts {
    Accelerator& accelerator;
    const Plan& plan;  // of all processes
    Replicas& replicas;
    Optimizers& optimizers;
    const LaneTable& lanes;
    const Dropout& dropout;
    World& world;
    std::chrono::milliseconds peer_timeout;
  };
  // Waits until the ranks of other processes have come. Throws Error(kDevice) or Error(kPeer).
  explicit DeviceTraining(const Parts& parts);
  ~DeviceTraining();

  // Of this process.
  DeviceLane& lane(int lane);
  DeviceReduction& reduction() { return *reduction_; }

  // Each issues its work, in this order in a round; clip() and apply() in the last round of a step only.
  void reduce(RoundOfStep round);
  void clip(double max_norm);
  void apply(double lr);
  // Undoes what rounds since the last step have left in the streams' states.
  void roll_back();

  // Fills in what the oldest round that was not asked for came to (DeviceReduction::outcome).
  void tell(Reduced& reduced);
  // No round is left that tell() was not asked for.
  bool told_of_all() const { return packed_ == reduced_; }

  // Returns when all that was issued is done.
  void wait();
  // While nothing is under way, as in a checkpoint.
  void save_state(RecurrentState& recurrent);
  void load_state(const RecurrentState& recurrent);

  // What each lane did last, a line each, for a run that has failed; "" before the first round. While nothing is
  // issued.
  std::string flight_record();
  // For the report: devices, and how rounds were issued.
  nlohmann::ordered_json told() const;

 private:
  // In a domain's queue: DeviceLane::settle_state() of its lanes, with what `held` gives for the domain.
  void settle_states(int domain, const at::Tensor& held);
  // The queue of the domain that the lane's weights are in.
  DeviceQueue& domain_queue(const DeviceLane& lane);
  void domains_wait_for_lanes();
  void lanes_wait_for_domains();

  Accelerator& accelerator_;
  Replicas& replicas_;
  Optimizers& optimizers_;
  const LaneTable& table_;
  const std::vector<int> gpus_;  // of the lanes
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
  // Rounds of this process, counted from 1: packed for the reduction, known to be reduced; steps issued.
  std::uint64_t packed_ = 0, reduced_ = 0, updated_ = 0;
  std::unique_ptr<DeviceReduction> reduction_;  // last: its queues' work uses the lanes
};

}  // namespace lanewise
