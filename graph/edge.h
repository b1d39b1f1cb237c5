// An Edge is one bounded connection between two stages: a ring with one producer, one consumer and exact counters.
//
// Packets move downstream, room moves back up. The edge does not check whether there is a packet or room: its two
// stages count that (stage.h), so that an edge never carries more than its capacity and no packet is ever dropped.
//
//   invariants        0 <= fill <= capacity,  deepest <= capacity
//   while at rest     put == taken + fill,    tail == (head + fill) modulo capacity
//
// put() is for the producer's firing, take() for the consumer's; a stage runs one firing at a time. counts() is for any
// thread at any time, each counter exact, all of them consistent with each other while the flow rests.
#pragma once

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph/packet.h"

namespace lanewise {

class Stage;

using Tick = std::int64_t;  // nanoseconds
inline Tick ticks() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Adds to a counter that one thread at a time writes and any thread may read: no locked instruction.
template <class T>
void bump(std::atomic<T>& counter, T by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

class alignas(64) Edge {
 public:
  struct Counts {
    int fill = 0, deepest = 0;
    std::uint64_t put = 0, taken = 0;  // initial packets count as put
    Tick starved = 0;                  // the consumer waited, and a packet on this edge ended the wait
    Tick blocked = 0;                  // the producer waited, and room on this edge ended the wait
  };

  // Requires: capacity >= 1 and at most `capacity` initial packets (else an internal Error).
  Edge(Stage& from, Stage& to, int capacity, std::vector<Packet> initial = {});

  Stage& from() const { return from_; }
  Stage& to() const { return to_; }
  int capacity() const { return capacity_; }

  // Adds a packet; returns how many there were before. Requires: room.
  int put(Packet&& packet) {
    slots_[tail_] = std::move(packet);
    if (++tail_ == capacity_) tail_ = 0;
    bump<std::uint64_t>(put_, 1);
    const int before = fill_.fetch_add(1, std::memory_order_acq_rel);  // publishes the slot
    assert(before < capacity_);
    if (before >= deepest_.load(std::memory_order_relaxed)) deepest_.store(before + 1, std::memory_order_relaxed);
    return before;
  }

  // Takes the oldest packet; returns how many there were before. Requires: a packet.
  int take(Packet& into) {
    into = std::move(slots_[head_]);
    if (++head_ == capacity_) head_ = 0;
    bump<std::uint64_t>(taken_, 1);
    const int before = fill_.fetch_sub(1, std::memory_order_acq_rel);  // hands the slot back
    assert(before > 0);
    return before;
  }

  // A wait that this edge ended: the producer notes how long the consumer starved, the consumer how long the producer
  // was blocked.
  void note_starved(Tick wait) { bump(starved_, wait); }
  void note_blocked(Tick wait) { bump(blocked_, wait); }

  int fill() const { return fill_.load(std::memory_order_acquire); }
  Counts counts() const;

  // Only while the flow rests: whether the invariants above hold, and the packets left, oldest first.
  bool consistent() const;
  void for_each_left(const std::function<void(const Packet&)>& visit) const;

 private:
  // Three cache lines: what both sides touch, the producer's side, the consumer's side.
  std::atomic<int> fill_{0};
  const int capacity_;
  Stage &from_, &to_;
  const std::unique_ptr<Packet[]> slots_;

  alignas(64) int tail_ = 0;
  std::atomic<int> deepest_{0};
  std::atomic<std::uint64_t> put_{0};
  std::atomic<Tick> starved_{0};

  alignas(64) int head_ = 0;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<Tick> blocked_{0};
};

}  // namespace lanewise
