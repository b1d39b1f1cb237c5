// The background thread: launches groups, connects ranks, moves data, each when it is due.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fake_nccl/library.h"

namespace fake_nccl {

void Library::run() {
  Lock lock(mutex);
  while (!stopping_) {
    move_on();
    changed_.notify_all();
    if (next_ == Time::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, next_);
    }
  }
}

// Does all that is due; next_ says when to come again.
void Library::move_on() {
  now_ = Clock::now();
  next_ = Time::max();
  for (bool moved = true; moved;) {
    moved = move_launches();
    for (const CommPtr& comm : live_) {
      if (comm->error != ncclSuccess) continue;
      if (move_init(*comm) || move_op(*comm) || move_finalize(*comm)) moved = true;
    }
  }
}

bool Library::due(Time time) {
  if (time <= now_) return true;
  next_ = std::min(next_, time);
  return false;
}

// ---- one step each; true: it was made, and another may follow

bool Library::move_launches() {
  bool moved = false;
  for (std::size_t i = 0; i < launches_.size();) {
    if (!due(launches_[i].due)) {
      ++i;
      continue;
    }
    const Launch launched = std::move(launches_[i]);
    launches_.erase(launches_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const CommPtr& comm : launched.group.comms()) {
      --comm->launching;
      if (launched.error != ncclSuccess) comm->fail(launched.error);
    }
    if (launched.error == ncclSuccess) launch(launched.group);
    moved = true;
  }
  return moved;
}

bool Library::move_init(Comm& comm) {
  Clique& clique = *comm.clique;
  if (comm.init == Phase::kStarted && due(comm.init_due)) {
    comm.init = Phase::kStuck;
    if (plan.take(kFakeNcclHang, comm.rank, kFakeNcclAtInit)) return true;
    if (const auto error = planned_error(kFakeNcclError, comm, kFakeNcclAtInit)) {
      comm.fail(*error);
      return true;
    }
    comm.init = Phase::kArrived;
    comm.init_due = later(comm, kFakeNcclAtInit, Delay::kReady);
    ++clique.arrived;
    return true;
  }
  const bool all = clique.arrived == clique.ranks() && !clique.broken;
  if (comm.init != Phase::kArrived || !all || !due(comm.init_due)) return false;
  comm.init = Phase::kDone;
  return true;
}

bool Library::may_begin(const Stream& stream, const Comm& comm, const Op& op) {
  const bool first = stream.ops.front() == std::pair<const Comm*, std::int64_t>(&comm, op.index);
  return first && (!stream.opened || stream.completed < *stream.opened);
}

// The first collective in the communicator's queue.
bool Library::move_op(Comm& comm) {
  if (comm.ops.empty()) return false;
  Op& op = comm.ops.front();
  switch (op.stage) {
    case Op::Stage::kLaunched:
      if (!may_begin(streams_.at(op.stream), comm, op)) return false;
      op.due = later_or_late(comm, op.index, Delay::kStart);
      op.stage = Op::Stage::kDelayed;
      return true;
    case Op::Stage::kDelayed:
      if (!due(op.due)) return false;
      op.stage = Op::Stage::kStuck;
      if (plan.take(kFakeNcclHang, comm.rank, op.index)) return true;
      if (const auto error = planned_error(kFakeNcclError, comm, op.index)) {
        comm.fail(*error);
        return true;
      }
      op.stage = Op::Stage::kArrived;
      arrive(comm, op);
      return true;
    case Op::Stage::kArrived:
      if (!comm.clique->collectives.at(op.index).result) return false;
      op.due = later(comm, op.index, Delay::kDelivery);
      op.stage = Op::Stage::kDelivering;
      return true;
    case Op::Stage::kDelivering:
      if (!due(op.due)) return false;
      deliver(comm, op);
      return true;
    case Op::Stage::kStuck:
      return false;
  }
  return false;
}

bool Library::move_finalize(Comm& comm) {
  if (comm.finalize != Phase::kStarted || !comm.ops.empty() || comm.launching > 0 || !due(comm.finalize_due)) {
    return false;
  }
  comm.finalize = plan.take(kFakeNcclHang, comm.rank, kFakeNcclAtFinalize) ? Phase::kStuck : Phase::kDone;
  if (const auto error = planned_error(kFakeNcclError, comm, kFakeNcclAtFinalize)) comm.fail(*error);
  return true;
}

// ---- data

// Copies a rank's input; the last to arrive combines all, in rank order.
void Library::arrive(Comm& comm, const Op& op) {
  const int ranks = comm.clique->ranks();
  Collective& shared = comm.clique->collectives.at(op.index);
  shared.inputs.resize(ranks);
  if (op.send) {
    const auto* const begin = static_cast<const unsigned char*>(op.send);
    shared.inputs[comm.rank].assign(begin, begin + op.what.bytes());
  }
  if (++shared.arrived < ranks || comm.clique->broken) return;
  Bytes& result = shared.result.emplace(std::move(shared.inputs[op.what.op ? 0 : op.what.root]));
  for (int rank = 1; op.what.op && rank < ranks; ++rank) {
    info(op.what.type).combine(result, shared.inputs[rank], *op.what.op);
  }
  shared.inputs.clear();
}

// Copies the result to a rank; the operation is complete and gone.
void Library::deliver(Comm& comm, const Op& op) {
  const std::int64_t index = op.index;
  Collective& shared = comm.clique->collectives.at(index);
  auto* const to = static_cast<unsigned char*>(op.receive);
  std::memcpy(to, shared.result->data(), shared.result->size());
  if (const auto bit = plan.take(kFakeNcclCorrupt, comm.rank, index)) {
    const std::uint64_t at = static_cast<std::uint64_t>(*bit) % (shared.result->size() * 8);
    to[at / 8] ^= static_cast<unsigned char>(1u << (at % 8));
  }
  Stream& stream = streams_.at(op.stream);
  stream.ops.pop_front();
  ++stream.completed;
  comm.ops.pop_front();
  if (++shared.delivered == comm.clique->ranks()) comm.clique->collectives.erase(index);
}

}  // namespace fake_nccl
