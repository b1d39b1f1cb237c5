#include "tests/fake_nccl/library.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fake_nccl {
namespace {

// A thread's number, valid within one life of the library between two resets. Without a destructor: one would keep the
// library loaded.
struct ThreadNumber {
  int life, number;
};
thread_local ThreadNumber this_thread_number{0, 0};

}  // namespace

Library& library() {
  static Library it;
  return it;
}

void Library::reset() {
  Lock lock(mutex);
  stopping_ = true;
  wake_.notify_all();
  if (runner_.joinable()) {
    lock.unlock();
    runner_.join();
    lock.lock();
  }
  runner_ = {};
  stopping_ = false;
  ++life_;
  first_id_ = next_id_, first_handle_ = next_handle_;
  next_group_ = 1, threads_ = 0;
  for (const auto& [handle, comm] : comms_) {
    comm->clique->members.clear();  // they point to each other
  }
  callers_.clear(), cliques_.clear(), comms_.clear(), live_.clear(), launches_.clear(), streams_.clear();
  notes.clear();
  plan = {};
  patience_ms = kPatience;
  changed_.notify_all();
}

Thread& Library::thread() {
  if (this_thread_number.life != life_) this_thread_number = {life_, ++threads_};
  Thread& it = callers_[this_thread_number.number];
  it.number = this_thread_number.number;
  return it;
}

// ---- what every call uses

ncclResult_t Library::broken(std::string line, ncclResult_t result) {
  notes.violation(std::move(line));
  return result;
}

void Library::record(const Thread& caller, const Comm* comm, const std::string& what, ncclResult_t result) {
  notes.event(text(caller.str(), caller.group.number > 0 ? text(", group ", caller.group.number) : "",
                   comm ? ", " + comm->name() : "", ": ", what, " -> ", kResults[result]));
}

// The communicator of a handle that may be used: one that lives and that no other thread is inside of.
ncclResult_t Library::find(const char* call, ncclComm_t handle, CommPtr& found, bool only_asks) {
  Thread& caller = thread();
  const auto at = comms_.find(handle);
  std::string wrong;
  if (!handle) {
    wrong = text(caller.str(), ": ", call, " of a null communicator");
  } else if (at == comms_.end()) {
    const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(handle) / kHandle;
    const bool stale = number > 0 && number < first_handle_;
    wrong = text(caller.str(), ": ", call, " of ",
                 stale ? "a communicator of before the last reset" : "what is no communicator");
  } else if (at->second->life != Life::kLive) {
    const bool aborted = at->second->life == Life::kAborted;
    wrong = text(at->second->name(), ": ", call, " after ", aborted ? "ncclCommAbort" : "ncclCommDestroy");
  } else if (!only_asks && at->second->inside) {
    wrong = text(at->second->name(), ": ", call, " by ", caller.str(), " while thread ", at->second->inside,
                 " is inside ", at->second->inside_call);
  } else {
    found = at->second;
    return ncclSuccess;
  }
  if (!only_asks && caller.group.depth > 0) caller.group.error = ncclInvalidArgument;
  return broken(wrong);
}

// As ncclCommEnsureReady. `goes_on`: it is to do something new, so its caller must have been told that the last is
// done.
ncclResult_t Library::ready(const char* call, const CommPtr& comm, bool goes_on) {
  const ncclResult_t state = comm->state();
  if (state != ncclSuccess && state != ncclInProgress) return state;
  if (state == ncclInProgress || (goes_on && comm->unpolled)) {
    broken(text(comm->name(), ": ", call, " before ncclCommGetAsyncError has told the end of ",
                comm->unpolled ? comm->unpolled : "ncclGroupEnd"));
  }
  return state == ncclInProgress ? ncclInvalidArgument : ncclSuccess;
}

// A blocking call waits for `done`, but not for ever. False: its patience is at an end.
bool Library::wait(Lock& lock, const std::vector<CommPtr>& comms, const char* call, const std::function<bool()>& done) {
  const int caller = thread().number;
  for (const CommPtr& comm : comms) comm->inside = caller, comm->inside_call = call;
  wake_.notify_one();
  const bool in_time = changed_.wait_for(lock, std::chrono::milliseconds(patience_ms), done);
  for (const CommPtr& comm : comms) comm->inside = 0;
  return in_time;
}

// The planned error that has come, if one has.
std::optional<ncclResult_t> Library::planned_error(FakeNcclFault kind, const Comm& comm, std::int64_t at) {
  const auto value = plan.take(kind, comm.rank, at);
  if (!value) return std::nullopt;
  const auto result = static_cast<ncclResult_t>(*value);
  notes.error(text(comm.name(), ": ", kResults[result], ", as the test has planned"));
  return result;
}

Time Library::later(const Comm& comm, std::int64_t at, Delay what_for) const {
  return Clock::now() + plan.delay(comm.rank, at, what_for);
}

Time Library::later_or_late(const Comm& comm, std::int64_t at, Delay what_for) {
  return later(comm, at, what_for) + std::chrono::milliseconds(plan.take(kFakeNcclLate, comm.rank, at).value_or(0));
}

// ---- questions

ncclResult_t Library::ask(const char* call, ncclComm_t handle, int* out, int (*value)(const Comm&)) {
  CommPtr comm;
  if (const ncclResult_t result = find(call, handle, comm, true); result != ncclSuccess) return result;
  if (!out) return broken(text(comm->name(), ": ", call, " into a null pointer"));
  if (const ncclResult_t result = ready(call, comm, false); result != ncclSuccess) return result;
  *out = value(*comm);
  return ncclSuccess;
}

ncclResult_t Library::async_error(ncclComm_t handle, ncclResult_t* out) {
  constexpr const char* kCall = "ncclCommGetAsyncError";
  CommPtr comm;
  if (const ncclResult_t result = find(kCall, handle, comm, true); result != ncclSuccess) return result;
  if (!out) return broken(text(comm->name(), ": ", kCall, " into a null pointer"));
  *out = comm->state();
  if (*out == ncclSuccess) comm->unpolled = nullptr;
  return ncclSuccess;
}

bool Library::stream_done(const void* stream) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const auto& entry) { return entry.first.first != stream || entry.second.ops.empty(); });
}

// Of a stream that is not null.
void Library::open_stream(const void* stream, std::int64_t count) {
  streams_[{stream, -1}].opened = count;
  wake_.notify_one();
}

std::int64_t Library::stream_launched(const void* stream) const {
  const auto at = streams_.find({stream, -1});
  return at != streams_.end() ? at->second.launched : 0;
}

std::int64_t Library::stream_completed(const void* stream) const {
  const auto at = streams_.find({stream, -1});
  return at != streams_.end() ? at->second.completed : 0;
}

std::string Library::live() const {
  std::string all;
  for (const CommPtr& comm : live_) {
    const ncclResult_t state = comm->state();
    all += text(comm->name(), ": ", state == ncclSuccess ? "ready" : kResults[state], ", ", comm->ops.size(),
                " collectives to complete\n");
  }
  for (const auto& [number, thread] : callers_) {
    if (thread.group.depth > 0) all += text(thread.str(), ": open group ", thread.group.number, "\n");
  }
  return all;
}

}  // namespace fake_nccl
