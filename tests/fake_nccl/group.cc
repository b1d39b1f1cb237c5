// Groups: what joins them, what is checked at their end, their launch, and the wait of blocking ones.
#include <algorithm>
#include <set>
#include <utility>

#include "tests/fake_nccl/library.h"

namespace fake_nccl {
namespace {

std::string str(const std::set<int>& ranks) {
  std::string all;
  for (const int rank : ranks) list(all, rank);
  return all;
}

// The ranks that have not come to init, or have gone.
std::string missing(const Clique& clique) {
  std::string all;
  for (int rank = 0; rank < clique.ranks(); ++rank) {
    const CommPtr& comm = clique.members[rank];
    const bool here =
        comm && comm->life == Life::kLive && (comm->init == Phase::kArrived || comm->init == Phase::kDone);
    if (!here) list(all, rank);
  }
  return all;
}

}  // namespace

void Library::group_start() {
  Thread& caller = thread();
  if (caller.group.depth++ == 0) caller.group.number = next_group_++;
  record(caller, nullptr, "ncclGroupStart", ncclSuccess);
}

ncclResult_t Library::group_end(Lock& lock) {
  Thread& caller = thread();
  if (caller.group.depth == 0) {
    broken(text(caller.str(), ": ncclGroupEnd without ncclGroupStart"));
    record(caller, nullptr, "ncclGroupEnd", ncclInvalidUsage);
    return ncclInvalidUsage;
  }
  const int number = caller.group.number;
  std::optional<ncclResult_t> planned;
  for (const Op& op : caller.group.ops) {
    if (caller.group.depth == 1 && !planned) planned = planned_error(kFakeNcclEndError, *op.comm, op.index);
  }
  const ncclResult_t left = leave(lock, caller, "ncclGroupEnd");
  const ncclResult_t result = planned.value_or(left);
  const int now = std::exchange(caller.group.number, number);
  record(caller, nullptr, "ncclGroupEnd", result);
  caller.group.number = now;
  return result;
}

// A communicator takes part in the caller's group.
ncclResult_t Library::join(Thread& caller, const CommPtr& comm) {
  std::optional<bool>& blocking = caller.group.blocking;
  if (!blocking) blocking = comm->blocking;
  if (*blocking == comm->blocking) return ncclSuccess;
  return broken(text(comm->name(), ": blocking and non-blocking communicators in one group"));
}

// As ncclGroupErrCheck: when a call has failed its group will, and its communicator has an error if it can. Leaves the
// call's own group; returns what the call is to say.
ncclResult_t Library::leave_with(ncclResult_t result, Lock& lock, Thread& caller, const char* call,
                                 const CommPtr& comm) {
  if (result != ncclSuccess) {
    caller.group.error = result;
    if (comm && !comm->blocking) comm->fail(result);
  }
  const ncclResult_t ended = leave(lock, caller, call);
  return result != ncclSuccess ? result : ended;
}

// The end of a call or of a group: leaves it, and launches what the outermost one holds.
ncclResult_t Library::leave(Lock& lock, Thread& caller, const char* call) {
  if (--caller.group.depth > 0) return ncclSuccess;
  Group group = std::exchange(caller.group, {});
  const std::vector<CommPtr> comms = group.comms();
  for (const Op& op : group.ops) op.comm->in_group_of = 0;
  if (std::any_of(comms.begin(), comms.end(), [](const CommPtr& comm) { return comm->life != Life::kLive; })) {
    group.error = ncclInvalidArgument;  // ended while in the group, which is noted there
  }
  const ncclResult_t later_error = take_launch_errors(group);
  if (group.error != ncclSuccess) {
    for (const CommPtr& comm : comms) comm->fail(group.error);
    changed_.notify_all();
    return group.error;
  }
  check_driven(caller, group);
  if (comms.empty()) return ncclSuccess;
  if (!runner_.joinable()) runner_ = std::thread([this] { run(); });

  if (!*group.blocking) {
    for (const CommPtr& comm : comms) ++comm->launching, comm->unpolled = call;
    const Time when = later(*comms.front(), comms.front()->issued, Delay::kLaunch);
    launches_.push_back({when, std::move(group), later_error});
    wake_.notify_one();
    return ncclInProgress;
  }
  launch(group);
  wake_.notify_one();
  for (const Op& op : group.ops) {
    if (op.comm->error != ncclSuccess) return op.comm->error;
  }
  return wait_for_ends(lock, caller, group, call);
}

// Planned errors: one of now becomes the group's, one of later is returned.
ncclResult_t Library::take_launch_errors(Group& group) {
  ncclResult_t later_error = ncclSuccess;
  for (const Op& op : group.ops) {
    if (group.error != ncclSuccess) break;
    if (const auto error = planned_error(kFakeNcclLaunchError, *op.comm, op.index)) {
      group.error = *error;
    } else if (const auto later_one = planned_error(kFakeNcclLaterLaunchError, *op.comm, op.index)) {
      (group.blocking == false ? later_error : group.error) = *later_one;
    }
  }
  return later_error;
}

// What one thread launches for a clique belongs in one group, always the same ranks.
void Library::check_driven(const Thread& caller, const Group& group) {
  std::map<int, std::pair<Clique*, std::set<int>>> ranks;  // by clique
  for (const Op& op : group.ops) {
    auto& [clique, here] = ranks[op.comm->clique->number];
    clique = op.comm->clique.get();
    here.insert(op.comm->rank);
  }
  for (const auto& [number, entry] : ranks) {
    const auto& [clique, here] = entry;
    const auto [before, first] = clique->driven_by.try_emplace(caller.number, here);
    if (first || before->second == here || before->second.empty()) continue;
    broken(text("missing group: ", caller.str(), " launches collectives of rank ", str(here),
                " apart from those of rank ", str(before->second), number > 1 ? text(" of clique ", number) : "",
                "; one group must hold all ranks of a thread"));
    before->second.clear();  // told once
  }
}

void Library::launch(const Group& group) {
  for (const CommPtr& comm : group.inits) {
    if (comm->life != Life::kLive || comm->init != Phase::kNone) continue;
    comm->init = Phase::kStarted;
    comm->init_due = later_or_late(*comm, kFakeNcclAtInit, Delay::kInit);
  }
  for (const Op& op : group.ops) {
    if (op.comm->life == Life::kLive && op.comm->error == ncclSuccess) launch(op);
  }
  for (const CommPtr& comm : group.finalizes) {
    if (comm->life != Life::kLive || comm->finalize != Phase::kNone) continue;
    comm->finalize = Phase::kStarted;
    comm->finalize_due = later_or_late(*comm, kFakeNcclAtFinalize, Delay::kFinalize);
  }
}

// A blocking group waits for its inits and finalizes. Those that are stuck are noted and get an error.
ncclResult_t Library::wait_for_ends(Lock& lock, const Thread& caller, const Group& group, const char* call) {
  std::vector<CommPtr> waited = group.inits;
  waited.insert(waited.end(), group.finalizes.begin(), group.finalizes.end());
  if (waited.empty()) return ncclSuccess;
  const auto failed = [&]() -> ncclResult_t {
    for (const CommPtr& comm : waited) {
      if (comm->life != Life::kLive) return ncclInternalError;
      if (comm->error != ncclSuccess) return comm->error;
    }
    return ncclSuccess;
  };
  const auto done = [&] {
    const auto at_work = [](const CommPtr& comm) { return comm->in_progress(); };
    return failed() != ncclSuccess || std::none_of(waited.begin(), waited.end(), at_work);
  };
  if (wait(lock, waited, call, done)) return failed();
  for (const CommPtr& comm : waited) {
    if (!comm->in_progress()) continue;
    const std::string what = comm->init == Phase::kDone
                                 ? text(comm->ops.size(), " collectives to complete")
                                 : text("rank ", missing(*comm->clique), " to come: missing group?");
    broken(text(comm->name(), ": ", call, " by ", caller.str(), " has waited ", patience_ms, " ms for ", what));
    comm->fail(ncclInternalError);
    comm->clique->broken = true;
  }
  return ncclInternalError;
}

}  // namespace fake_nccl
