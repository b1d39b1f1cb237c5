// The end of a communicator: finalized and destroyed, or aborted.
#include <algorithm>
#include <chrono>

#include "tests/fake_nccl/library.h"

namespace fake_nccl {

ncclResult_t Library::finalize(Lock& lock, ncclComm_t handle) {
  constexpr const char* kCall = "ncclCommFinalize";
  if (!handle) return ncclSuccess;
  Thread& caller = thread();
  CommPtr comm;
  if (const ncclResult_t result = find(kCall, handle, comm); result != ncclSuccess) return result;
  ++caller.group.depth;
  ncclResult_t result = ready(kCall, comm, true);
  if (result == ncclSuccess && comm->finalize != Phase::kNone) {
    result = broken(text(comm->name(), ": ", kCall, " twice"));
  }
  if (result == ncclSuccess) result = join(caller, comm);
  if (result == ncclSuccess) {
    check_ends(kCall, comm);
    caller.group.finalizes.push_back(comm);
  }
  const ncclResult_t told = leave_with(result, lock, caller, kCall, comm);
  record(caller, comm.get(), kCall, told);
  return told;
}

ncclResult_t Library::destroy(Lock& lock, ncclComm_t handle) {
  constexpr const char* kCall = "ncclCommDestroy";
  if (!handle) return ncclSuccess;
  Thread& caller = thread();
  CommPtr comm;
  if (const ncclResult_t result = find(kCall, handle, comm); result != ncclSuccess) return result;
  const auto tell = [&](ncclResult_t result) {
    record(caller, comm.get(), kCall, result);
    return result;
  };
  if (comm->error != ncclSuccess) {
    return tell(
        broken(text(comm->name(), ": ", kCall, " in error (", kResults[comm->error], "); only ncclCommAbort frees it"),
               comm->error));
  }
  if (const ncclResult_t result = ready(kCall, comm, true); result != ncclSuccess) return tell(result);
  if (comm->in_group_of) broken(text(comm->name(), ": ", kCall, " with a collective in an open group"));
  if (comm->finalize == Phase::kNone) check_ends(kCall, comm);
  if (!comm->ops.empty()) {
    broken(text(comm->name(), ": ", kCall, " without ncclCommFinalize and with ", comm->ops.size(),
                " collectives to complete"));
    wait(lock, {comm}, kCall, [&] { return comm->ops.empty() || comm->error != ncclSuccess; });
    if (!comm->ops.empty()) comm->clique->broken = true;
  }
  end(comm, Life::kDestroyed);
  return tell(ncclSuccess);
}

ncclResult_t Library::abort(Lock& lock, ncclComm_t handle) {
  constexpr const char* kCall = "ncclCommAbort";
  if (!handle) return ncclSuccess;
  Thread& caller = thread();
  CommPtr comm;
  const auto inside = comms_.find(handle);
  if (inside != comms_.end() && inside->second->life == Life::kLive && inside->second->inside) {
    // Against the rules, and yet it ends what the other thread waits for.
    find(kCall, handle, comm);
    comm = inside->second;
  } else if (const ncclResult_t result = find(kCall, handle, comm); result != ncclSuccess) {
    return result;
  }
  if (comm->in_group_of) {
    broken(text(comm->name(), ": ", kCall, " by ", caller.str(), " with a collective in an open group of thread ",
                comm->in_group_of));
  }
  if (const auto late = plan.take(kFakeNcclLate, comm->rank, kFakeNcclAtAbort)) {
    comm->inside = caller.number, comm->inside_call = kCall;
    changed_.wait_for(lock, std::chrono::milliseconds(*late), [] { return false; });
    comm->inside = 0;
    if (comm->life != Life::kLive) return ncclInvalidArgument;  // twice, which is noted
  }
  end(comm, Life::kAborted);
  record(caller, comm.get(), kCall, ncclSuccess);
  return ncclSuccess;
}

// A rank that ends must have issued as many collectives as the others.
void Library::check_ends(const char* call, const CommPtr& comm) {
  for (const CommPtr& other : comm->clique->members) {
    if (!other || other->life != Life::kLive || other->issued <= comm->issued) continue;
    broken(text(comm->name(), ": ", call, " after ", comm->issued, " collectives, but rank ", other->rank,
                " has issued ", other->issued));
    other->fail(ncclInvalidUsage);
  }
}

// Frees all that is the communicator's; nothing touches its buffers any more.
void Library::end(const CommPtr& comm, Life life) {
  comm->life = life;
  if (life == Life::kAborted) comm->clique->broken = true;
  comm->ops.clear();
  for (auto& [key, stream] : streams_) {
    stream.completed +=
        static_cast<std::int64_t>(std::erase_if(stream.ops, [&](const auto& op) { return op.first == comm.get(); }));
    if (stream.user == comm) stream.user = nullptr;
  }
  std::erase(live_, comm);
  wake_.notify_one();
  changed_.notify_all();
}

}  // namespace fake_nccl
