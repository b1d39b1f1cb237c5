// An NcclClique is this process's ranks among all that reduce together: a communicator a device, and one thread that
// issues for all of them, in one group a round, or part of one (NCCL: a group belongs to its thread).
//
// Nothing waits without an end: communicators do not block, and who waits for them polls their error and a deadline.
// After a failure, whose message tells what each rank did last, all of them are to be aborted: only for that NCCL names
// no limit, where a GPU hangs. Not verified on a GPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/devices/streams.h"
#include "runtime/nccl/library.h"
#include "runtime/nccl/sum.h"

namespace lanewise {

struct NcclPlace {
  int first = 0, count = 1, all = 1;         // this process's ranks are [first, first + count) of all
  std::string unique_id;                     // ncclUniqueId, the same in all processes
  std::vector<std::string> names;            // of this process's ranks in messages: "rank 3 (lane3 on cuda:3)"
  std::chrono::milliseconds timeout{60000};  // that others may be late
};

// By one thread, always the same, from construction to destruction.
class NcclClique {
 public:
  // The bytes of an ncclUniqueId, for one of the processes to make.
  static std::string make_unique_id(const NcclLibrary& nccl);

  NcclClique(const NcclLibrary& nccl, DeviceStreams& streams, NcclPlace place);
  // The ranks part: in peace, which is waited for a moment at most, or as abort().
  ~NcclClique();
  NcclClique(const NcclClique&) = delete;
  NcclClique& operator=(const NcclClique&) = delete;

  // Once, before all else: returns when all ranks have come. This, launch() and finish() throw Error(kPeer), after which
  // only abort() is of use.
  void connect();
  // The buffers' pieces become the sum over all ranks; in place, and in the order of the device's stream. Returns when
  // it is launched everywhere here.
  void launch(const NcclSum& sum);
  // Returns when the oldest sum that was not finished, this one, is done.
  void finish(NcclRound round);
  // The ranks part, whatever is under way; buffers are free when all have. May take for ever where a GPU hangs.
  void abort();

 private:
  struct Event {
    const char* what = "";
    NcclRound round;
  };
  enum class Until { kReady, kDone };

  // What each rank did last, a line each.
  std::string recorded() const;
  // Calls for every rank in one group, and returns when all are ready for the next call. What is then recorded of each:
  // that it was `called`, that it is `ready`.
  void in_group(const std::string& doing, Event called, Event ready, const std::function<ncclResult_t(int rank)>& call);
  void check(ncclResult_t result, const std::string& doing);
  void wait(Until until, const std::string& doing, Event reached);
  [[noreturn]] void fail(const std::string& doing, const std::string& why);

  const NcclLibrary& nccl_;
  DeviceStreams& streams_;
  const NcclPlace place_;
  std::vector<ncclComm_t> communicators_;  // empty: aborted
  bool failed_ = false;
  std::vector<Event> last_;                // of each rank
};

}  // namespace lanewise
