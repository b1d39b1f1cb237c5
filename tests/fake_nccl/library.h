// The one object behind the fake's C functions: what each call does, and the background thread that does the rest.
//
// Calls change the state and wake the background thread, which moves on whatever is due:
//
//   init:        started -> arrived -> (all ranks have) -> ready
//   group:       ended -> launched (at once when blocking)
//   collective:  launched -> first of its stream -> arrived (input copied) -> (all ranks have) -> delivered
//
// `mutex` guards everything: all members, and all that comm.h and group.h describe. Whoever calls a method holds it,
// but for reset(), which takes it; a method that is handed the Lock may wait and releases it meanwhile. The background
// thread holds it but while it sleeps. It alone touches the callers' buffers, under the mutex, for operations that are
// in a communicator's queue: whoever empties the queue can be sure that nothing touches them any more.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_nccl/comm.h"
#include "tests/fake_nccl/group.h"
#include "tests/fake_nccl/notes.h"
#include "tests/fake_nccl/plan.h"

namespace fake_nccl {

using Lock = std::unique_lock<std::mutex>;

class Library {
 public:
  ~Library() { reset(); }

  // fake_nccl_reset().
  void reset();

  // The calling thread.
  Thread& thread();

  // ---- NCCL's calls; `call` is the name of the one that is meant

  ncclResult_t unique_id(ncclUniqueId* id);
  ncclResult_t init(Lock& lock, const char* call, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                    const ncclConfig_t* config);
  ncclResult_t collective(Lock& lock, const Signature& what, const void* send, void* receive, ncclComm_t handle,
                          cudaStream_t stream);
  ncclResult_t finalize(Lock& lock, ncclComm_t handle);
  ncclResult_t destroy(Lock& lock, ncclComm_t handle);
  ncclResult_t abort(Lock& lock, ncclComm_t handle);
  void group_start();
  ncclResult_t group_end(Lock& lock);
  ncclResult_t ask(const char* call, ncclComm_t handle, int* out, int (*value)(const Comm&));
  ncclResult_t async_error(ncclComm_t handle, ncclResult_t* out);

  // ---- what the test asks and sets

  bool stream_done(const void* stream) const;
  void open_stream(const void* stream, std::int64_t count);
  std::int64_t stream_launched(const void* stream) const;
  std::int64_t stream_completed(const void* stream) const;
  std::string live() const;

  std::mutex mutex;
  Notes notes;
  Plan plan;
  int patience_ms = kPatience;

 private:
  static constexpr int kPatience = 2000;

  // ---- library.cc: what every call uses

  ncclResult_t broken(std::string line, ncclResult_t result = ncclInvalidArgument);  // notes a violation
  void record(const Thread& caller, const Comm* comm, const std::string& what, ncclResult_t result);
  ncclResult_t find(const char* call, ncclComm_t handle, CommPtr& found, bool only_asks = false);
  ncclResult_t ready(const char* call, const CommPtr& comm, bool goes_on);
  bool wait(Lock& lock, const std::vector<CommPtr>& comms, const char* call, const std::function<bool()>& done);
  std::optional<ncclResult_t> planned_error(FakeNcclFault kind, const Comm& comm, std::int64_t at);
  Time later(const Comm& comm, std::int64_t at, Delay what_for) const;
  Time later_or_late(const Comm& comm, std::int64_t at, Delay what_for);

  // ---- init.cc

  ncclResult_t begin_init(Thread& caller, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                          const ncclConfig_t* config);
  ncclResult_t clique_of(const ncclUniqueId& id, int ranks, int rank, std::shared_ptr<Clique>& found);
  void check_initialised(const Thread& caller, const CommPtr& comm);

  // ---- group.cc

  ncclResult_t join(Thread& caller, const CommPtr& comm);
  ncclResult_t leave(Lock& lock, Thread& caller, const char* call);
  ncclResult_t leave_with(ncclResult_t result, Lock& lock, Thread& caller, const char* call, const CommPtr& comm);
  ncclResult_t take_launch_errors(Group& group);
  void check_driven(const Thread& caller, const Group& group);
  void launch(const Group& group);
  ncclResult_t wait_for_ends(Lock& lock, const Thread& caller, const Group& group, const char* call);

  // ---- collective.cc

  ncclResult_t append(Thread& caller, const CommPtr& comm, const Signature& what, const void* send, void* receive,
                      cudaStream_t stream);
  void launch(const Op& op);

  // ---- end.cc

  void check_ends(const char* call, const CommPtr& comm);
  void end(const CommPtr& comm, Life life);

  // ---- runner.cc: the background thread

  void run();
  void move_on();
  bool due(Time time);
  bool move_launches();
  bool move_init(Comm& comm);
  static bool may_begin(const Stream& stream, const Comm& comm, const Op& op);
  bool move_op(Comm& comm);
  bool move_finalize(Comm& comm);
  void arrive(Comm& comm, const Op& op);
  void deliver(Comm& comm, const Op& op);

  std::condition_variable wake_;     // the background thread: there may be something to do
  std::condition_variable changed_;  // calls that wait: something has been done
  std::thread runner_;               // from the first launch to the next reset
  bool stopping_ = false;
  Time now_, next_;  // of the pass that move_on() makes

  int life_ = 1;  // counts resets
  int next_group_ = 1, threads_ = 0;
  std::map<int, Thread> callers_;                             // by number
  std::uint64_t first_id_ = 1, next_id_ = 1;                  // ids of this life
  std::uintptr_t first_handle_ = 1, next_handle_ = 1;         // in units of kHandle
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques_;  // by the number of their id
  std::map<ncclComm_t, CommPtr> comms_;                       // all of this life
  std::vector<CommPtr> live_;                                 // neither destroyed nor aborted
  std::vector<Launch> launches_;
  std::map<StreamKey, Stream> streams_;
};

constexpr std::uintptr_t kHandle = 64;

// Made at the first call.
Library& library();

}  // namespace fake_nccl
