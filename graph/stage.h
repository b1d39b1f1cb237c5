// A Stage runs one node: it counts what is missing for the next firing, and fires when nothing is.
//
// Missing are: input edges without a packet, and output edges without room. One atomic number counts both. A neighbour
// whose put or take removes the last one owns the stage and must get it run: so a stage is scheduled exactly once, when
// it can fire. There are no failed tries, no polling and no locks, and a stage never runs on two threads at once.
//
//   firing    take one packet of every input -> the node's body -> put what it emitted on every edge of its port
//   pause     the stage keeps what was emitted until the flow goes on
//   feed      a stage of a type that is `fed` needs something from outside besides, counted like the packets of an edge
//   end       what was emitted goes out; then, as soon as every output has room, an end packet on each of them
//
// Light bodies run one after the other on the thread that made them ready; long ones, and those that may wait, never
// have others waiting behind them. Threads come from a Scheduler, so that stages know nothing of oneTBB.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "graph/edge.h"
#include "graph/node.h"
#include "graph/plan.h"

namespace lanewise {

class Worker;

class alignas(64) Stage {
 public:
  // `node` and `plan` must outlive the stage.
  Stage(Node& node, const PlanNode& plan);

  // Wiring, before the first start(): inputs in port order.
  void add_input(Edge& edge);
  void add_output(std::size_t port, Edge& edge);

  // Lifts the condition that keeps a new stage from running; true: it can fire now, and the caller must get it run.
  // Waits count from `now` on.
  bool start(Tick now);
  // One thing more has come from outside; true: the stage can fire now, and the caller must get it run. Any thread.
  bool feed();
  // It lacks nothing but what comes from outside.
  bool hungry() const { return missing_.load(std::memory_order_relaxed) == kPacket && plan_.type->fed; }
  Tick starved() const { return starved_.load(std::memory_order_relaxed); }

  // Lets a paused stage go on: the caller must get it run.
  void resume() { resumed_ = true; }

  // One firing, or what is left to do of an earlier one. Requires: the stage was made ready, and by its owner.
  // An exception leaves the stage as it is, never to be ready again.
  void run(Worker& worker);

  Node& node() const { return node_; }
  const PlanNode& plan() const { return plan_; }
  bool is_source() const { return inputs_.empty(); }
  const std::vector<Edge*>& inputs() const { return inputs_; }
  const std::vector<std::vector<Edge*>>& outputs() const { return outputs_; }  // per port

  // Counters, for any thread at any time.
  std::uint64_t fired() const { return fired_.load(std::memory_order_relaxed); }
  std::uint64_t absorbed() const { return absorbed_.load(std::memory_order_relaxed); }
  Tick busy() const { return busy_.load(std::memory_order_relaxed); }
  bool ended() const { return ended_.load(std::memory_order_relaxed); }
  bool firing() const { return static_cast<std::uint32_t>(missing_.load(std::memory_order_relaxed)) > kRunning / 2; }

  // While the flow rests: time that passed without it counts for no wait.
  void skip(Tick rest) { idle_since_ += rest; }

 private:
  friend class Worker;
  friend class ReadyList;

  // `missing_` holds two numbers: the inputs without a packet in the upper half, the outputs without room in the lower.
  // While a firing is in progress kRunning is added below: neighbours may lower the count before the firing adds what
  // it used up, and it must not look like zero meanwhile. kEnding, added above, marks a stage that needs only room.
  static constexpr std::int64_t kRoom = 1, kPacket = std::int64_t{1} << 32;
  static constexpr std::int64_t kRunning = kRoom << 24, kEnding = kPacket << 24;

  // A neighbour's event on one of our edges, on the neighbour's thread.
  void packet_came(Edge& edge, Worker& worker);
  void room_came(Edge& edge, Worker& worker);

  void fire(Worker& worker);
  void put_emitted(Worker& worker);
  void put_ends(Worker& worker);
  void put(Edge& edge, Packet&& packet, Worker& worker);

  std::atomic<std::int64_t> missing_{kRoom};

  alignas(64) Node& node_;
  const PlanNode& plan_;
  Stage* next_ = nullptr;  // in a ReadyList
  Tick idle_since_ = 0;
  Tick cost_;                 // smoothed time of the body
  std::int64_t used_up_ = 0;  // conditions that the firing in progress itself makes missing
  bool heavy_ = true;         // the body is long, or may wait
  bool resumed_ = false;      // after a pause: the next run() puts what emitted_ has kept
  bool finished_ = false;     // the node called the flow complete: it is never fired again
  bool ending_ = false;       // the node has ended; its outputs may have to wait for room
  std::vector<Edge*> inputs_;
  std::vector<std::vector<Edge*>> outputs_;
  std::vector<Packet> hand_;                    // the inputs of the firing in progress
  std::vector<std::optional<Packet>> emitted_;  // per port

  std::atomic<std::uint64_t> fired_{0}, absorbed_{0};
  std::atomic<Tick> busy_{0}, starved_{0};  // starved_: of what comes from outside
  std::atomic<std::uint64_t> fed_{0};       // things from outside that it has not been fired for
  std::atomic<bool> ended_{false};
};

// Ready stages, first in, first out. A stage is in one list at most.
class ReadyList {
 public:
  bool empty() const { return head_ == nullptr; }
  Tick cost() const { return cost_; }  // time that its bodies will take
  bool heavy() const { return heavy_ > 0; }
  void add(Stage& stage);
  Stage* pop();  // nullptr: empty

 private:
  Stage* head_ = nullptr;
  Stage* tail_ = nullptr;
  Tick cost_ = 0;
  int heavy_ = 0;
};

// Where ready stages go that the present worker does not keep, and what a firing can decide about the whole flow.
// All methods may be called from any thread.
class Scheduler {
 public:
  explicit Scheduler(bool one_thread) : one_thread_(one_thread) {}
  virtual ~Scheduler() = default;

  virtual void spawn(Stage& stage) = 0;  // gets it run by some worker, in the order of the calls
  virtual bool park(
      Stage& stage) = 0;  // asked before a source fires; true: it is kept back while the flow comes to rest
  virtual void paused(Stage& stage) = 0;    // it holds its packets; the flow is to rest
  virtual void finished(Stage& stage) = 0;  // the flow is to end when it rests
  virtual void sated(Stage& stage) = 0;     // it takes nothing more from outside
  virtual void failed(Stage& stage, std::exception_ptr error) noexcept = 0;

  bool one_thread() const { return one_thread_; }
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }    // no further firing is to start
  bool resting() const { return resting_.load(std::memory_order_relaxed); }      // a stage has paused or finished
  bool crowded() const { return spawned_.load(std::memory_order_relaxed) > 0; }  // spawned stages wait for a worker

 protected:
  std::atomic<bool> stopping_{false}, resting_{false};
  std::atomic<int> spawned_{0};

 private:
  const bool one_thread_;
};

// One thread's turn: runs ready stages, and those that become ready by it, until none is left or its time is up.
class Worker {
 public:
  explicit Worker(Scheduler& scheduler) : scheduler_(scheduler), now_(ticks()) {}

  void run(ReadyList ready);

 private:
  friend class Stage;
  void add(Stage& stage);  // a stage has become ready: keeps it or spawns it
  void spawn_all();

  Scheduler& scheduler_;
  Tick now_;  // the last clock reading: one a firing is enough
  ReadyList ready_;
  Stage* running_ = nullptr;
};

}  // namespace lanewise
