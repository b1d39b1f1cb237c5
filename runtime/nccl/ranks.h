// NcclRanks is what a process has of NCCL: its GPUs' ranks, and the one thread that speaks for them. Not verified on a
// GPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/devices/queue.h"
#include "runtime/world.h"

namespace lanewise {

class NcclRanks {
 public:
  struct Options {
    std::chrono::milliseconds timeout{60000};  // that other ranks may be late
    std::vector<std::string> names;            // of the ranks here, in messages
    bool deterministic = true;                 // one algorithm and protocol, whatever the machine suggests
  };
  // A rank a queue, in all processes together; returns when all have come. The queues outlive it. Throws Error(kDevice)
  // or Error(kPeer).
  NcclRanks(World& world, Accelerator& accelerator, std::vector<DeviceQueue*> queues, const Options& options);
  ~NcclRanks();

  // buffers[i], of `count` float32 or float64 elements on the device of rank i here, becomes the sum over all ranks, in
  // place and in the queue's order. Returns when it is launched. Throws Error(kPeer), with everything aborted.
  void launch(const std::vector<void*>& buffers, std::size_t count, bool is_double, std::uint64_t round);
  // Returns when the oldest round that was not finished, this one, is done; otherwise as launch().
  void finish(std::uint64_t round);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lanewise
