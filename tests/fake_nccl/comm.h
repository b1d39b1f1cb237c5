// What the fake NCCL keeps about cliques, their communicators, and operations on streams.
//
// All of it is the Library's and guarded by its mutex. A Clique holds its communicators and they hold it, until the
// Library parts them at a reset; whoever needs a communicator while the mutex is released holds a CommPtr.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_nccl/common.h"
#include "tests/fake_nccl/signature.h"

namespace fake_nccl {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

struct Comm;
using CommPtr = std::shared_ptr<Comm>;

// A stream, and for the default stream the device whose it is.
using StreamKey = std::pair<const void*, int>;

struct Stream {
  std::deque<std::pair<const Comm*, std::int64_t>> ops;  // launched, in order: whose, and which of its collectives
  CommPtr user;                                          // the communicator whose device the stream is on
  std::int64_t launched = 0, completed = 0;              // of ops
  std::optional<std::int64_t> opened;                    // so many may begin; absent: all
};

// A rank's part in a collective. What it is copied from and to belongs to the caller.
struct Op {
  enum class Stage { kLaunched, kDelayed, kArrived, kDelivering, kStuck };

  CommPtr comm;  // null once it is in that communicator's own queue
  Signature what;
  std::int64_t index = 0;
  const void* send = nullptr;
  void* receive = nullptr;
  StreamKey stream;
  Stage stage = Stage::kLaunched;
  Time due;
};

// One collective of a clique, from its first launch to its last delivery.
struct Collective {
  Signature what;
  int first_rank = 0;
  int arrived = 0, delivered = 0;
  std::vector<Bytes> inputs;  // by rank
  std::optional<Bytes> result;
};

// All communicators that were made with one unique id.
struct Clique {
  int number = 0;
  int arrived = 0;               // ranks that have come to init
  bool broken = false;           // a rank has gone without destroying: nothing completes any more
  std::vector<CommPtr> members;  // by rank, null until its init is called
  std::map<std::int64_t, Collective> collectives;
  std::map<int, std::pair<int, int>> initialised_by;  // thread -> group, rank
  std::map<int, std::set<int>> driven_by;             // thread -> the ranks of each of its groups

  int ranks() const { return static_cast<int>(members.size()); }
};

enum class Life { kLive, kDestroyed, kAborted };
enum class Phase { kNone, kStarted, kArrived, kDone, kStuck };  // of init and finalize

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool blocking = true;
  Life life = Life::kLive;
  Phase init = Phase::kNone, finalize = Phase::kNone;
  Time init_due, finalize_due;
  int launching = 0;  // groups that have ended and are not launched
  ncclResult_t error = ncclSuccess;
  const char* unpolled = nullptr;  // the call whose end ncclCommGetAsyncError has not told yet
  std::int64_t issued = 0;         // collectives, launched or not
  std::deque<Op> ops;              // launched, in order
  int issuer = 0;                  // the thread that issues
  int inside = 0;                  // the thread that waits in a call
  const char* inside_call = "";
  int in_group_of = 0;  // the thread whose open group has a collective of it

  std::string name() const {
    return clique->number == 1 ? text("rank ", rank) : text("rank ", rank, " of clique ", clique->number);
  }
  bool in_progress() const {
    return init != Phase::kDone || launching > 0 || (finalize != Phase::kNone && finalize != Phase::kDone);
  }
  ncclResult_t state() const { return error != ncclSuccess ? error : in_progress() ? ncclInProgress : ncclSuccess; }

  // The first error stays.
  void fail(ncclResult_t result) {
    if (error == ncclSuccess) error = result;
  }
};

}  // namespace fake_nccl
