// A DeviceQueue is the work of one lane, or of one device, in order: a CUDA stream, or a thread that stands for one.
//
// The host issues work, and learns that something is done by asking for a mark. One thread at a time issues to a queue.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/devices/bucket_parts.h"
#include "runtime/devices/bucket_pass.h"
#include "runtime/devices/streams.h"

namespace lanewise {

// Work that was issued once and is done again by one call; made by DeviceQueue::record().
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// A place in a queue's work that another queue can wait for; made by DeviceQueue::make_point().
class QueuePoint {
 public:
  virtual ~QueuePoint() = default;
};

class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // Issues the operations of `work`, which begin after all that was issued before. They are done at any time from now
  // on, so that what `work` reads from host memory stays as it is until a later mark is reached. Throws what an
  // operation throws, at once or from a later call.
  virtual void run(std::function<void()> work) = 0;

  // What is issued here from now on begins after all that `other` was given so far.
  virtual void wait_for(DeviceQueue& other) = 0;

  virtual std::unique_ptr<QueuePoint> make_point() = 0;
  // To be called within run(): the point is now behind all that was issued so far, which has written `ready`, to be
  // read behind it; this queue leaves that alone until it is waited for.
  virtual void reach(QueuePoint& point, const at::Tensor& ready) = 0;
  // What is issued here from now on begins after the point of another queue, where that has reached it last, which it
  // has.
  virtual void wait_for(const QueuePoint& point) = 0;

  // A mark behind all that was issued so far, and whether it has been reached; never waits.
  virtual std::uint64_t mark() = 0;
  virtual bool reached(std::uint64_t mark) = 0;

  // The operations of `work` on tensors that stay where they are, to be replayed in this queue's run(); none is done
  // now. Throws Error(kDevice) saying why they cannot be recorded, or that the queue does not come to them.
  virtual std::unique_ptr<Recording> record(std::function<void()> work) = 0;

  // To be called within run(): adds up buckets (runtime/devices/bucket_pass.h).
  virtual void add_buckets(const BucketPass& pass) = 0;
};

// Asks until it is so, or the time is over: all the time at first, since what is late by less than a sleep would cost a
// round; then now and then. Whether it is so.
bool comes_true(const std::function<bool()>& so, std::chrono::milliseconds timeout);

// That the host waits for a GPU at most, and whose work it waits for, in messages: "lane3 on cuda:1".
struct Patience {
  std::string who;
  std::chrono::milliseconds timeout{60000};
};

// Returns once the mark is reached; throws what the queue's work threw, and Error(kDevice) when the time is over: a GPU
// may hang.
void wait_until(DeviceQueue& queue, std::uint64_t mark, const Patience& patience);
// The same for all that was issued so far.
inline void wait_for_all(DeviceQueue& queue, const Patience& patience) { wait_until(queue, queue.mark(), patience); }
[[noreturn]] void fail_late(const Patience& patience);

// The rounds that NCCL was given in some queues, as each queue's marks behind them, and which of them are done there.
class RoundMarks {
 public:
  explicit RoundMarks(const std::vector<DeviceQueue*>& queues) : queues_(queues) {}
  void launched() {
    std::vector<std::uint64_t>& marks = rounds_.emplace_back();
    for (DeviceQueue* const queue : queues_) marks.push_back(queue->mark());
  }
  bool done(int queue) { return queues_[queue]->reached(rounds_.front()[queue]); }
  void finished() { rounds_.pop_front(); }

 private:
  const std::vector<DeviceQueue*> queues_;
  std::deque<std::vector<std::uint64_t>> rounds_;  // not finished, oldest first
};

// The GPUs of this process, or what stands for them.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual int count() const = 0;
  // Where tensors of a GPU lie.
  virtual at::Device device(int gpu) const = 0;
  virtual std::unique_ptr<DeviceQueue> make_queue(int gpu) = 0;
  // Memory of the host that a GPU copies from and to while the host goes on: bytes. From any thread.
  virtual at::Tensor host_memory(int gpu, std::int64_t bytes) = 0;
  // For NCCL: what rank i of this process uses, by its queue. The queues outlive it.
  virtual std::unique_ptr<DeviceStreams> streams(std::vector<DeviceQueue*> queues, int first_rank) = 0;
  // Path of NCCL's library.
  virtual std::string nccl() const = 0;
  // Returns when what was done with tensors outside of queues, while setting up, is done on the devices. Throws
  // Error(kDevice) when that takes too long.
  virtual void settle() = 0;
  // Gradients that are worth a collective of their own, in bytes (runtime/devices/bucket_parts.h).
  virtual std::int64_t part_bytes() const { return kPartBytes; }
  // "NVIDIA H200", or what it is instead.
  virtual std::string name(int gpu) const = 0;
  // That no other GPU of this host has, whatever number a process gives it: "0000:1b:00.0".
  virtual std::string address(int gpu) const = 0;
};

}  // namespace lanewise
