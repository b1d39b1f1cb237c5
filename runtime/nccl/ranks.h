// NcclRanks is what a process has of NCCL: its GPUs' ranks, and the one thread that speaks for them. Not verified on a
// GPU.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/devices/queue.h"
#include "runtime/nccl/sum.h"
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
  // Waits for NCCL for some seconds at most: what then has not come to its end is left to the process's.
  ~NcclRanks();

  // After a failure all ranks are aborted, while this goes on.
  // The buffers' pieces become the sum over all ranks, in place and in the queue's order; `before` is called by the
  // thread that launches, right before. Returns when it is launched. Throws Error(kPeer).
  void launch(const NcclSum& sum, const std::function<void()>& before);
  // The same, and returns at once: what goes wrong is thrown by the next wait() or launch().
  void post(NcclSum sum, std::function<void()> before);
  // Returns when all that was posted is launched.
  void wait();
  // Returns when the oldest sum that was not finished, this one, is done; otherwise as launch().
  void finish(NcclRound round);

 private:
  class Impl;
  struct Part {
    void operator()(Impl* impl) const;
  };
  std::unique_ptr<Impl, Part> impl_;
};

}  // namespace lanewise
