#include "graph/stage.h"

#include <algorithm>

namespace lanewise {
namespace {

// Handing a stage to another thread costs about a microsecond in cache misses.
constexpr Tick kHeavy = 3'000;     // a body from here on is worth a thread of its own
constexpr Tick kFeather = 500;     // a body below is never worth it
constexpr Tick kBudget = 10'000;   // work that a worker keeps to itself
constexpr Tick kTurn = 2'000'000;  // after that, what others spawned has its turn
constexpr std::size_t kWide = 8;   // more edges than that take time of their own: the clock is read again

}  // namespace

Stage::Stage(Node& node, const PlanNode& plan)
    : node_(node),
      plan_(plan),
      idle_since_(ticks()),
      cost_(4 * kHeavy),
      outputs_(plan.outputs.size()),
      emitted_(plan.outputs.size()) {
  if (plan.type->fed) missing_ += kPacket;
}

void Stage::add_input(Edge& edge) {
  inputs_.push_back(&edge);
  hand_.resize(inputs_.size());
  if (edge.fill() == 0) missing_ += kPacket;
}

void Stage::add_output(std::size_t port, Edge& edge) {
  outputs_.at(port).push_back(&edge);
  if (edge.fill() == edge.capacity()) missing_ += kRoom;
}

bool Stage::start(Tick now) {
  idle_since_ = now;
  return missing_.fetch_sub(kRoom, std::memory_order_acq_rel) == kRoom;
}

bool Stage::feed() {
  if (fed_.fetch_add(1, std::memory_order_acq_rel) != 0) return false;
  if (missing_.fetch_sub(kPacket, std::memory_order_acq_rel) != kPacket) return false;
  if (const Tick now = ticks(); now > idle_since_) bump(starved_, now - idle_since_);
  return true;
}

void Stage::packet_came(Edge& edge, Worker& worker) {
  if (missing_.fetch_sub(kPacket, std::memory_order_acq_rel) != kPacket) return;
  if (worker.now_ > idle_since_) edge.note_starved(worker.now_ - idle_since_);
  worker.add(*this);
}

void Stage::room_came(Edge& edge, Worker& worker) {
  const std::int64_t left = missing_.fetch_sub(kRoom, std::memory_order_acq_rel) - kRoom;
  if (left != 0 && (left < kEnding || static_cast<std::uint32_t>(left) != 0)) return;
  if (worker.now_ > idle_since_) edge.note_blocked(worker.now_ - idle_since_);
  worker.add(*this);
}

void Stage::run(Worker& worker) {
  if (resumed_) {
    resumed_ = false;
    put_emitted(worker);
  } else if (ending_) {
    put_ends(worker);
  } else {
    fire(worker);
  }
}

void Stage::fire(Worker& worker) {
  // It was zero: nobody else touches it until one of our edges moves.
  missing_.store(kRunning, std::memory_order_relaxed);
  used_up_ = 0;
  Packet* hand = hand_.data();
  for (Edge* edge : inputs_) {
    const int before = edge->take(*hand++);
    if (before == 1) used_up_ += kPacket;
    if (before == edge->capacity()) edge->from().room_came(*edge, worker);
  }
  if (plan_.type->fed && fed_.fetch_sub(1, std::memory_order_acq_rel) == 1) used_up_ += kPacket;
  if (heavy_) worker.spawn_all();
  if (inputs_.size() > kWide) worker.now_ = ticks();

  Firing firing(fired(), hand_, emitted_);
  node_.fire(firing);

  const Tick end = ticks(), took = end - worker.now_;
  worker.now_ = end;
  bump(busy_, took);
  bump<std::uint64_t>(fired_, 1);
  if (firing.absorbed() > 0) bump(absorbed_, firing.absorbed());
  const Tick above = std::min(took, 64 * kHeavy) - cost_;
  cost_ += above > 0 ? above / 16 : above / 4;  // rises slowly: a preempted body is no long body
  heavy_ = cost_ > kHeavy || plan_.type->may_wait;
  for (Packet& packet : hand_) packet = Packet();

  ending_ = firing.ended();
  if (ending_ && plan_.type->fed) worker.scheduler_.sated(*this);
  if (firing.finished()) {
    finished_ = true;
    worker.scheduler_.finished(*this);
  }
  if (firing.paused()) {
    worker.scheduler_.paused(*this);  // what was emitted stays where it is
  } else {
    put_emitted(worker);
  }
}

void Stage::put(Edge& edge, Packet&& packet, Worker& worker) {
  const int before = edge.put(std::move(packet));
  if (before + 1 == edge.capacity()) used_up_ += kRoom;
  if (before == 0) edge.to().packet_came(edge, worker);
}

void Stage::put_emitted(Worker& worker) {
  std::size_t count = 0;
  for (std::size_t port = 0; port < outputs_.size(); ++port) {
    std::optional<Packet>& packet = emitted_[port];
    if (!packet) continue;
    const std::vector<Edge*>& edges = outputs_[port];
    count += edges.size();
    for (std::size_t i = 0; i < edges.size(); ++i) {
      put(*edges[i], i + 1 < edges.size() ? Packet(*packet) : std::move(*packet), worker);
    }
    packet.reset();
  }
  if (count > kWide) worker.now_ = ticks();  // a wide broadcast is not the next body's time

  idle_since_ = worker.now_;
  if (finished_ && !ending_) return;  // kRunning stays: it is not fired again, and what feeds it runs full
  const std::int64_t change = used_up_ - kRunning + (ending_ ? kEnding : 0);
  const std::int64_t left = missing_.fetch_add(change, std::memory_order_acq_rel) + change;
  if (left == 0 || (left >= kEnding && static_cast<std::uint32_t>(left) == 0)) worker.add(*this);
}

void Stage::put_ends(Worker& worker) {
  missing_.fetch_add(kRunning, std::memory_order_acq_rel);  // for good
  for (const std::vector<Edge*>& edges : outputs_) {
    for (Edge* edge : edges) put(*edge, Packet(), worker);
  }
  ended_.store(true, std::memory_order_relaxed);
}

void ReadyList::add(Stage& stage) {
  stage.next_ = nullptr;
  (tail_ != nullptr ? tail_->next_ : head_) = &stage;
  tail_ = &stage;
  cost_ += stage.cost_;
  heavy_ += stage.heavy_;
}

Stage* ReadyList::pop() {
  Stage* stage = head_;
  if (stage == nullptr) return nullptr;
  head_ = stage->next_;
  if (head_ == nullptr) tail_ = nullptr;
  cost_ -= stage->cost_;
  heavy_ -= stage->heavy_;
  return stage;
}

void Worker::add(Stage& stage) {
  const bool keep = scheduler_.one_thread() || ready_.empty() ||
                    (stage.heavy_ ? !ready_.heavy() : stage.cost_ < kFeather || ready_.cost() + stage.cost_ <= kBudget);
  if (keep) {
    ready_.add(stage);
  } else {
    scheduler_.spawn(stage);
  }
}

void Worker::spawn_all() {
  if (scheduler_.one_thread()) return;  // nobody to hand work to: first in, first out is fair
  while (Stage* stage = ready_.pop()) scheduler_.spawn(*stage);
}

void Worker::run(ReadyList ready) {
  ready_ = ready;
  const Tick until = now_ + kTurn;
  try {
    while ((running_ = ready_.pop()) != nullptr && !scheduler_.stopping()) {
      if (scheduler_.resting() && running_->is_source() && scheduler_.park(*running_)) continue;
      if (running_->heavy_) spawn_all();
      running_->run(*this);
      if (now_ > until && scheduler_.crowded()) spawn_all();
    }
  } catch (...) {
    scheduler_.failed(*running_, std::current_exception());
  }
}

}  // namespace lanewise
