// A FlowCore is a flow without its threads: the stages and edges of a plan, who is ready, how it ended, and the
// accounts. Flow drives it with oneTBB, its tests with a handful of plain threads.
//
//   start_all() ; wait until every wake() has had its work() and all have returned ; settle()
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/flow.h"
#include "graph/stage.h"

namespace lanewise {

class FlowCore : public Scheduler {
 public:
  // As Flow's constructor. Throws what a node's initial() throws.
  FlowCore(const Plan& plan, std::vector<std::unique_ptr<Node>> nodes, bool one_thread);
  ~FlowCore() override;

  // Begins, or goes on after a pause. Requires: the flow rests. Throws an internal Error when it is over, and the
  // flow's own when cancel() came first.
  void start_all();
  // The flow has come to rest: tells how. Throws the flow's error, a stall, or accounts that do not balance.
  Flow::Outcome settle();

  // One worker's turn with the oldest ready stage (with all of them, when there is one thread).
  void work();

  // The first error is kept, interrupts every node, and lets no further firing start. Any thread.
  void stop(Exit exit, const std::string& why) noexcept;

  FlowReport report() const;                 // any thread
  std::vector<std::string> waiting() const;  // any thread
  std::vector<std::string> firing() const;   // any thread
  std::vector<std::string> hungry() const;   // any thread

  const Plan& plan() const { return plan_; }
  Node& node(int index) { return *nodes_.at(index); }
  const std::deque<Stage>& stages() const { return stages_; }
  const std::deque<Edge>& edges() const { return edges_; }

 protected:
  // A stage that is fed has been given something: from outside, by any thread.
  void feed(Stage& stage) noexcept;

  // Has work() called once more, on some worker. May be called from any worker and, in start_all(), by the caller.
  virtual void wake(const Stage& stage) = 0;
  // The same from outside, while the flow is kept running: by any thread, not for long.
  virtual void wake_from_outside(const Stage& stage) { wake(stage); }
  // Keeps the flow running though nothing is ready, as long as something may come from outside; and no longer.
  virtual void keep_running(bool keep) = 0;
  // What an exception that is no Error says.
  virtual std::string tell(const std::exception& error) const { return error.what(); }

 private:
  enum class State { kNew, kRunning, kPaused, kOver };

  void spawn(Stage& stage) final;
  bool park(Stage& stage) final;
  void paused(Stage& stage) final;
  void finished(Stage& stage) final;
  void sated(Stage& stage) final;
  void failed(Stage& stage, std::exception_ptr error) noexcept final;
  void enqueue(Stage& stage);  // requires mutex_
  std::pair<Exit, std::string> describe(const std::exception_ptr& error) const;
  void rest(const Stage& stage);
  void keep(bool keep);  // requires mutex_
  class StageFeed;
  int index(const Stage& stage) const { return static_cast<int>(&stage.plan() - plan_.nodes.data()); }

  const Plan& plan_;
  const std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<Stage> stages_;  // as in the plan
  std::deque<Edge> edges_;    // as in the plan; gone before the nodes that made their packets
  std::vector<std::unique_ptr<Feed>> feeds_;
  std::vector<int> island_;    // per node: which connected part of the plan it is in
  State state_ = State::kNew;  // of the thread that runs the flow

  mutable std::mutex mutex_;    // for all below
  ReadyList queue_;             // ready stages that no worker keeps to itself
  std::vector<Stage*> paused_;  // stages that hold their packets
  std::vector<Stage*> parked_;  // sources kept back while the flow comes to rest: of other islands, and fed ones
  int hungry_ = 0;              // stages that are fed and have not ended
  bool kept_ = false;           // the flow is kept running for them
  int resting_island_ = 0;
  bool finished_ = false;
  std::optional<std::pair<Exit, std::string>> error_;
  Tick running_since_ = 0, rested_since_ = 0, ran_ = 0;  // running_since_ 0: at rest
};

}  // namespace lanewise
