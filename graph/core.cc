#include "graph/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "graph/account.h"

namespace lanewise {
namespace {

// Numbers the connected parts of a plan, one number a node.
std::vector<int> find_islands(const Plan& plan) {
  std::vector<int> root(plan.nodes.size());
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&root](int i) {
    while (root[i] != i) i = root[i] = root[root[i]];
    return i;
  };
  for (const PlanEdge& edge : plan.edges) root[find(edge.from)] = find(edge.to);
  for (int i = 0; i < static_cast<int>(root.size()); ++i) root[i] = find(i);
  return root;
}

}  // namespace

class FlowCore::StageFeed final : public Feed {
 public:
  StageFeed(FlowCore& core, Stage& stage) : core_(core), stage_(stage) {}
  void came() noexcept override { core_.feed(stage_); }

 private:
  FlowCore& core_;
  Stage& stage_;
};

FlowCore::FlowCore(const Plan& plan, std::vector<std::unique_ptr<Node>> nodes, bool one_thread)
    : Scheduler(one_thread), plan_(plan), nodes_(std::move(nodes)), island_(find_islands(plan)) {
  if (nodes_.size() != plan.nodes.size()) throw Error(Exit::kInternal, "a flow needs one node for each of its plan's");
  for (std::size_t i = 0; i < nodes_.size(); ++i) stages_.emplace_back(*nodes_[i], plan.nodes[i]);
  for (const PlanEdge& e : plan.edges) {
    std::vector<Packet> initial;
    for (int i = 0; i < e.initial; ++i) initial.push_back(nodes_[e.from]->initial(e.from_port));
    edges_.emplace_back(stages_[e.from], stages_[e.to], e.capacity, std::move(initial));
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    for (const int edge : node.inputs) stages_[i].add_input(edges_[edge]);
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      for (const int edge : node.outputs[port]) stages_[i].add_output(port, edges_[edge]);
    }
  }
  for (Stage& stage : stages_) {
    if (!stage.plan().type->fed) continue;
    ++hungry_;
    stage.node().connect(feeds_.emplace_back(std::make_unique<StageFeed>(*this, stage)).get());
  }
}

FlowCore::~FlowCore() {
  for (Stage& stage : stages_) {
    if (stage.plan().type->fed) stage.node().connect(nullptr);
  }
}

void FlowCore::start_all() {
  std::vector<Stage*> ready;
  const Tick now = ticks();
  {
    const std::lock_guard lock(mutex_);
    if (error_ && state_ != State::kOver) {
      state_ = State::kOver;
      throw Error(error_->first, error_->second);
    }
    if (state_ == State::kOver) throw Error(Exit::kInternal, "a flow that is over cannot be run again");
    running_since_ = now;
    for (Stage* stage : paused_) stage->resume();
    ready.swap(paused_);
    ready.insert(ready.end(), parked_.begin(), parked_.end());
    parked_.clear();
    resting_ = finished_;
    const Tick rested = state_ == State::kPaused ? now - rested_since_ : 0;
    for (Stage& stage : stages_) stage.skip(rested);
  }
  if (state_ == State::kNew) {
    for (Stage& stage : stages_) {
      if (stage.start(now)) ready.push_back(&stage);
    }
  }
  state_ = State::kRunning;
  {
    // All before the first is woken: with one thread, that one takes them all.
    const std::lock_guard lock(mutex_);
    ready.insert(ready.end(), parked_.begin(), parked_.end());  // what was fed meanwhile
    parked_.clear();
    for (Stage* stage : ready) enqueue(*stage);
    keep(hungry_ > 0 && !resting_ && !stopping_);
  }
  for (Stage* stage : ready) wake(*stage);
}

Flow::Outcome FlowCore::settle() {
  const std::lock_guard lock(mutex_);
  rested_since_ = ticks();
  ran_ += rested_since_ - std::exchange(running_since_, 0);
  state_ = State::kOver;
  if (error_) throw Error(error_->first, error_->second);
  if (!paused_.empty()) {
    state_ = State::kPaused;
    return Flow::Outcome::kPaused;
  }
  const bool ended =
      std::all_of(stages_.begin(), stages_.end(), [](const Stage& s) { return !s.is_source() || s.ended(); });
  bool empty = true;
  for (std::size_t i = 0; i < edges_.size(); ++i) empty &= edges_[i].fill() == 0 || plan_.edges[i].initial > 0;
  if (!finished_ && !(ended && empty)) throw Error(Exit::kStall, stall_message(waiting_lines(stages_)));
  check_accounts(plan_, stages_, edges_);
  return Flow::Outcome::kDone;
}

void FlowCore::work() {
  ReadyList turn;
  {
    const std::lock_guard lock(mutex_);
    if (one_thread()) {
      std::swap(turn, queue_);
      spawned_ = 0;
    } else if (Stage* oldest = queue_.pop()) {
      turn.add(*oldest);
      spawned_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  Worker(*this).run(turn);
}

void FlowCore::stop(Exit exit, const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_.emplace(exit, why);
    stopping_ = true;
    keep(false);
  }
  for (const std::unique_ptr<Node>& node : nodes_) node->interrupt();
}

FlowReport FlowCore::report() const {
  FlowReport report;
  report.edges = report_edges(plan_, edges_);
  report.nodes = report_nodes(stages_);
  const std::lock_guard lock(mutex_);
  report.seconds = static_cast<double>(ran_ + (running_since_ != 0 ? ticks() - running_since_ : 0)) * 1e-9;
  return report;
}

std::vector<std::string> FlowCore::waiting() const { return waiting_lines(stages_); }

void FlowCore::spawn(Stage& stage) {
  {
    const std::lock_guard lock(mutex_);
    enqueue(stage);
  }
  wake(stage);
}

void FlowCore::enqueue(Stage& stage) {
  queue_.add(stage);
  spawned_.fetch_add(1, std::memory_order_relaxed);
}

std::vector<std::string> FlowCore::firing() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ids;
  for (const Stage& stage : stages_) {
    if (stage.firing() && std::ranges::count(paused_, &stage) == 0) ids.push_back(stage.plan().id);
  }
  return ids;
}

std::vector<std::string> FlowCore::hungry() const {
  std::vector<std::string> ids;
  for (const Stage& stage : stages_) {
    if (stage.hungry()) ids.push_back(stage.plan().id);
  }
  return ids;
}

bool FlowCore::park(Stage& stage) {
  const std::lock_guard lock(mutex_);
  if (island_[index(stage)] == resting_island_) return false;
  parked_.push_back(&stage);
  return true;
}

void FlowCore::paused(Stage& stage) {
  const std::lock_guard lock(mutex_);
  paused_.push_back(&stage);
  rest(stage);
}

void FlowCore::finished(Stage& stage) {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  rest(stage);
}

void FlowCore::rest(const Stage& stage) {
  resting_island_ = island_[index(stage)];
  resting_ = true;
  keep(false);
}

void FlowCore::sated(Stage&) {
  const std::lock_guard lock(mutex_);
  if (--hungry_ == 0) keep(false);
}

void FlowCore::keep(bool keep) {
  if (keep == kept_) return;
  kept_ = keep;
  keep_running(keep);
}

void FlowCore::feed(Stage& stage) noexcept {
  const std::lock_guard lock(mutex_);
  if (!stage.feed()) return;
  if (!kept_) return parked_.push_back(&stage);
  enqueue(stage);
  wake_from_outside(stage);
}

// Exit code and text of an exception in a body.
std::pair<Exit, std::string> FlowCore::describe(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.exit(), e.what()};
  } catch (const std::bad_alloc&) {
    return {Exit::kInternal, "out of memory"};
  } catch (const std::exception& e) {
    return {Exit::kInternal, tell(e)};
  } catch (...) {
    return {Exit::kInternal, "an exception of unknown type"};
  }
}

void FlowCore::failed(Stage& stage, std::exception_ptr error) noexcept {
  const auto [exit, what] = describe(error);
  stop(exit, fmt::format("{} ({}), firing {}: {}", stage.plan().id, stage.plan().type->name, stage.fired(), what));
}

}  // namespace lanewise
