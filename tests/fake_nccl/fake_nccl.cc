// The fake NCCL; see fake_nccl.h. Its answers follow the source of NCCL 2.28.9 (init.cc, group.cc, enqueue.cc).
//
// One mutex guards everything. Calls change the state and wake the background thread, which moves on whatever is due:
//
//   init:        started -> arrived -> (all ranks have) -> ready
//   group:       ended -> launched (at once when blocking)
//   collective:  launched -> first of its stream -> arrived (input copied) -> (all ranks have) -> delivered
//
// Buffers are touched by that thread only, under the mutex, for operations that are in a communicator's queue: whoever
// empties the queue can be sure that nothing touches them any more.
#include "tests/fake_nccl/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Lock = std::unique_lock<std::mutex>;
using Bytes = std::vector<unsigned char>;

constexpr int kVersion = NCCL_VERSION_CODE;
static_assert(kVersion == 22809);
constexpr std::size_t kKept = 256;  // lines

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return out.str();
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr const char* kResults[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                    "ncclRemoteError",   "ncclInProgress"};
struct Type {
  const char* name;
  std::size_t size;
};
constexpr Type kTypes[] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
                           {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
                           {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};
constexpr const char* kOps[] = {"sum", "prod", "max", "min"};

// Integers wrap around, as on a device.
template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  const auto wrap = [](T x) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<std::uint64_t>(x);
    } else {
      return x;
    }
  };
  switch (op) {
    case ncclSum:
      return static_cast<T>(wrap(a) + wrap(b));
    case ncclProd:
      return static_cast<T>(wrap(a) * wrap(b));
    case ncclMax:
      return b > a ? b : a;
    default:
      return b < a ? b : a;
  }
}

template <class T>
void combine(Bytes& sum, const Bytes& more, ncclRedOp_t op) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, &sum[at], sizeof(T));
    std::memcpy(&b, &more[at], sizeof(T));
    a = combined(a, b, op);
    std::memcpy(&sum[at], &a, sizeof(T));
  }
}

using Combine = void (*)(Bytes&, const Bytes&, ncclRedOp_t);
Combine combine_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return combine<std::uint8_t>;
    case ncclInt32:
      return combine<std::int32_t>;
    case ncclInt64:
      return combine<std::int64_t>;
    case ncclFloat32:
      return combine<float>;
    case ncclFloat64:
      return combine<double>;
    default:
      return nullptr;
  }
}

// What the ranks of a clique must agree on.
struct Signature {
  const char* function = "";
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  std::optional<ncclRedOp_t> op;
  int root = -1;

  std::size_t bytes() const { return count * kTypes[type].size; }
  std::string str() const {
    return text(function, "(", count, " ", kTypes[type].name, op ? text(" ", kOps[*op]) : text(" from root ", root),
                ")");
  }
};

// What differs: "count, datatype"; "" when nothing does.
std::string difference(const Signature& a, const Signature& b) {
  if (std::strcmp(a.function, b.function) != 0) return "function";
  std::string all;
  const auto add = [&](bool differs, const char* what) {
    if (differs) all += (all.empty() ? "" : ", ") + std::string(what);
  };
  add(a.count != b.count, "count");
  add(a.type != b.type, "datatype");
  add(a.op != b.op, "op");
  add(a.root != b.root, "root");
  return all;
}

// A stream, and for the default stream the device whose it is.
using StreamKey = std::pair<const void*, int>;

enum class Stage { kLaunched, kDelayed, kArrived, kDelivering, kStuck };

struct Comm;
struct Op {
  std::shared_ptr<Comm> comm;
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
  int first_rank;
  int arrived = 0, delivered = 0;
  std::vector<Bytes> inputs;  // by rank
  std::optional<Bytes> result;
};

struct Clique {
  int number = 0;
  int arrived = 0;                             // ranks that have come to init
  bool broken = false;                         // a rank has gone without destroying: nothing completes any more
  std::vector<std::shared_ptr<Comm>> members;  // by rank, null until its init is called
  std::map<std::int64_t, Collective> collectives;
  std::map<int, std::pair<int, int>> initialised_by;  // thread -> group, rank
  std::map<int, std::set<int>> driven_by;             // thread -> the ranks of each of its groups
};

enum class Life { kLive, kDestroyed, kAborted };
enum class Phase { kNone, kStarted, kArrived, kDone, kStuck };  // of init and finalize

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool blocking = true;
  ncclComm_t handle = nullptr;
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
};
using CommPtr = std::shared_ptr<Comm>;

struct Group {
  int depth = 0;
  int number = 0;  // 0: none, a call stands alone
  ncclResult_t error = ncclSuccess;
  std::optional<bool> blocking;
  std::vector<CommPtr> inits, finalizes;
  std::vector<Op> ops;

  std::vector<CommPtr> comms() const {
    std::vector<CommPtr> all = inits;
    all.insert(all.end(), finalizes.begin(), finalizes.end());
    for (const Op& op : ops) all.push_back(op.comm);
    return all;
  }
};

struct Thread {
  int number = 0;
  std::optional<int> device;
  Group group;
  std::string str() const { return text("thread ", number); }
};

struct Launch {
  Time due;
  Group group;
  ncclResult_t error = ncclSuccess;
};

struct Fault {
  FakeNcclFault kind;
  int rank;
  std::int64_t at;
  std::int64_t value;
};

struct Stream {
  std::deque<std::pair<const Comm*, std::int64_t>> ops;
  CommPtr user;  // the communicator whose device the stream is on
};

// A thread's number, valid within one life of the library between two resets. Without a destructor: one would keep the
// library loaded.
struct ThreadNumber {
  int life, number;
};
thread_local ThreadNumber this_thread_number{0, 0};

class Library {
 public:
  ~Library() { reset(); }
  void reset();

  // All below require the lock.
  Thread& thread();
  ncclResult_t find(const char* call, ncclComm_t handle, CommPtr& found, bool only_asks = false);
  ncclResult_t ready(const char* call, const CommPtr& comm, bool goes_on);
  bool wait(Lock& lock, const std::vector<CommPtr>& comms, const char* call, const std::function<bool()>& done);

  ncclResult_t unique_id(ncclUniqueId* id);
  ncclResult_t init(Lock& lock, const char* call, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                    const ncclConfig_t* config);
  ncclResult_t collective(Lock& lock, Signature what, const void* send, void* receive, ncclComm_t handle,
                          cudaStream_t stream);
  ncclResult_t finalize(Lock& lock, ncclComm_t handle);
  ncclResult_t destroy(Lock& lock, ncclComm_t handle);
  ncclResult_t abort(Lock& lock, ncclComm_t handle);
  void group_start();
  ncclResult_t group_end(Lock& lock);
  ncclResult_t ask(const char* call, ncclComm_t handle, int* out, int Comm::*field);
  ncclResult_t async_error(ncclComm_t handle, ncclResult_t* out);

  ncclResult_t broken(std::string line, ncclResult_t result = ncclInvalidArgument);  // notes a violation
  bool stream_done(const void* stream) const;
  std::string live() const;

  std::mutex mutex;
  std::vector<std::string> violations;
  std::deque<std::string> events;
  std::vector<Fault> faults;
  std::string last_error;
  std::set<std::string> told_errors;  // every text that ncclGetLastError has given out
  std::uint64_t seed = 0;
  int max_us = 0, patience_ms = kPatience;

 private:
  static constexpr int kPatience = 2000;

  ncclResult_t begin_init(Thread& caller, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                          const ncclConfig_t* config);
  ncclResult_t append(Thread& caller, const CommPtr& comm, const Signature& what, const void* send, void* receive,
                      cudaStream_t stream);
  ncclResult_t join(Thread& caller, const CommPtr& comm);
  ncclResult_t end_of(Lock& lock, Thread& caller, const char* call);
  ncclResult_t refuse(Thread& caller, const CommPtr& comm, ncclResult_t result);
  void check_driven(const Thread& caller, const Group& group);
  void check_ends(const char* call, const CommPtr& comm);
  void launch(Group& group);
  void launch(const Op& op);
  void end(const CommPtr& comm, Life life);
  void fail(Comm& comm, ncclResult_t result);
  ncclResult_t strike(Comm& comm, std::int64_t value);
  void record(const Thread& caller, const Comm* comm, const std::string& what, ncclResult_t result);
  std::optional<std::int64_t> take(FakeNcclFault kind, int rank, std::int64_t at);
  Time later(const Comm& comm, std::int64_t at, int step) const;
  Time later_or_late(const Comm& comm, std::int64_t at, int step);

  void run();
  void move_on();
  bool due(Time time);
  bool move_init(Comm& comm);
  bool move_op(Comm& comm);
  bool move_finalize(Comm& comm);
  void deliver(Comm& comm, Op& op);

  std::condition_variable wake_, changed_;
  std::thread runner_;
  bool stopping_ = false;
  Time now_, next_;  // of the pass that move_on() makes

  int life_ = 1;
  int next_group_ = 1, threads_ = 0;
  std::map<int, Thread> callers_;
  std::uint64_t first_id_ = 1, next_id_ = 1;           // ids of this life
  std::uintptr_t first_handle_ = 1, next_handle_ = 1;  // in units of kHandle
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques_;
  std::map<ncclComm_t, CommPtr> comms_;  // all of this life
  std::vector<CommPtr> live_;
  std::vector<Launch> launches_;
  std::map<StreamKey, Stream> streams_;
};

constexpr std::uintptr_t kHandle = 64;

Library& library() {
  static Library it;
  return it;
}

// ---- what everything uses

Thread& Library::thread() {
  if (this_thread_number.life != life_) this_thread_number = {life_, ++threads_};
  Thread& it = callers_[this_thread_number.number];
  it.number = this_thread_number.number;
  return it;
}

ncclResult_t Library::broken(std::string line, ncclResult_t result) {
  last_error = line;
  if (violations.size() < kKept) violations.push_back(std::move(line));
  return result;
}

void Library::record(const Thread& caller, const Comm* comm, const std::string& what, ncclResult_t result) {
  events.push_back(text(caller.str(), caller.group.number > 0 ? text(", group ", caller.group.number) : "",
                        comm ? ", " + comm->name() : "", ": ", what, " -> ", kResults[result]));
  if (events.size() > kKept) events.pop_front();
}

std::optional<std::int64_t> Library::take(FakeNcclFault kind, int rank, std::int64_t at) {
  const auto found = std::find_if(faults.begin(), faults.end(), [&](const Fault& fault) {
    return fault.kind == kind && fault.rank == rank && fault.at == at;
  });
  if (found == faults.end()) return std::nullopt;
  const std::int64_t value = found->value;
  faults.erase(found);
  return value;
}

// Now and a delay that depends on (seed, rank, at, step) alone.
Time Library::later(const Comm& comm, std::int64_t at, int step) const {
  const std::uint64_t bits = mixed(mixed(mixed(mixed(seed) ^ comm.rank) ^ static_cast<std::uint64_t>(at)) ^ step);
  return Clock::now() + std::chrono::microseconds(bits % (static_cast<std::uint64_t>(max_us) + 1));
}

Time Library::later_or_late(const Comm& comm, std::int64_t at, int step) {
  return later(comm, at, step) + std::chrono::milliseconds(take(kFakeNcclLate, comm.rank, at).value_or(0));
}

void Library::fail(Comm& comm, ncclResult_t result) {
  if (comm.error == ncclSuccess) comm.error = result;
}

// A planned error has come.
ncclResult_t Library::strike(Comm& comm, std::int64_t value) {
  const auto result = static_cast<ncclResult_t>(value);
  last_error = text(comm.name(), ": ", kResults[result], ", as the test has planned");
  return result;
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

// ---- init

// An id is its number and bytes that follow from it, none of which may be lost on the way to another rank.
void fill(ncclUniqueId& id, std::uint64_t number) {
  std::memcpy(id.internal, &number, sizeof(number));
  for (std::size_t i = sizeof(number); i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(mixed(number * 1000 + i));
  }
}

ncclResult_t Library::unique_id(ncclUniqueId* id) {
  if (!id) return broken("ncclGetUniqueId into a null pointer");
  fill(*id, next_id_++);
  return ncclSuccess;
}

ncclResult_t Library::begin_init(Thread& caller, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                                 const ncclConfig_t* config) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return broken(text("init of rank ", rank, " of ", ranks));
  int blocking = 1;
  if (config) {
    if (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t) || config->version != kVersion) {
      return broken(text("init of rank ", rank, ": its config was not made by NCCL_CONFIG_INITIALIZER of ", kVersion));
    }
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) blocking = config->blocking;
    if (blocking != 0 && blocking != 1) {
      return broken(text("init of rank ", rank, ": config.blocking is ", blocking, ", not 0 or 1"));
    }
  }
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  ncclUniqueId same;
  fill(same, number);
  if (number < first_id_ || number >= next_id_ || std::memcmp(&same, &id, sizeof(id)) != 0) {
    return broken(
        text("init of rank ", rank, ": its unique id is not one of ncclGetUniqueId, or has changed on the way"));
  }
  std::shared_ptr<Clique>& clique = cliques_[number];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->number = static_cast<int>(cliques_.size());
    clique->members.resize(ranks);
  }
  if (static_cast<int>(clique->members.size()) != ranks) {
    return broken(
        text("init of rank ", rank, " of ", ranks, ": the unique id is that of ", clique->members.size(), " ranks"));
  }
  if (clique->members[rank]) {
    return broken(text("init of rank ", rank, ": it has come before with this unique id"), ncclInvalidUsage);
  }
  const auto comm = std::make_shared<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = caller.device.value_or(rank);
  comm->blocking = blocking == 1;
  comm->handle = reinterpret_cast<ncclComm_t>(next_handle_++ * kHandle);
  comms_[comm->handle] = comm;
  live_.push_back(comm);
  *out = comm->handle;

  const int group = caller.group.number > 0 ? caller.group.number : -rank - 1;
  const auto [before, first] = clique->initialised_by.try_emplace(caller.number, group, rank);
  if (!first && before->second.first != group) {
    broken(text("missing group: ", caller.str(), " initialises ", comm->name(), " apart from rank ",
                before->second.second, "; one group must hold all ranks of a thread"));
  }
  for (const CommPtr& other : clique->members) {
    if (!other || other->device != comm->device) continue;
    broken(text(comm->name(), ": device ", comm->device, " is also that of rank ", other->rank));
    fail(*other, ncclInvalidUsage);
    fail(*comm, ncclInvalidUsage);
  }
  clique->members[rank] = comm;
  caller.group.inits.push_back(comm);
  return join(caller, comm);
}

ncclResult_t Library::init(Lock& lock, const char* call, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                           const ncclConfig_t* config) {
  Thread& caller = thread();
  if (!out) return broken(text(call, " into a null pointer"));
  *out = nullptr;
  ++caller.group.depth;
  const ncclResult_t result = begin_init(caller, out, ranks, id, rank, config);
  const CommPtr comm = *out ? comms_.at(*out) : nullptr;
  if (result != ncclSuccess) refuse(caller, comm, result);
  const ncclResult_t ended = end_of(lock, caller, call);
  const ncclResult_t told = result != ncclSuccess ? result : ended;
  record(caller, comm.get(), text(call, " of ", ranks), told);
  return told;
}

// ---- groups

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
  const ncclResult_t result = end_of(lock, caller, "ncclGroupEnd");
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

// As ncclGroupErrCheck: a call in a group has failed, so the group will; and the communicator has an error if it can.
ncclResult_t Library::refuse(Thread& caller, const CommPtr& comm, ncclResult_t result) {
  caller.group.error = result;
  if (comm && !comm->blocking) fail(*comm, result);
  return result;
}

// What one thread launches for a clique belongs in one group, always the same ranks.
void Library::check_driven(const Thread& caller, const Group& group) {
  std::map<int, std::pair<Clique*, std::set<int>>> ranks;  // by clique
  for (const Op& op : group.ops) {
    auto& [clique, here] = ranks[op.comm->clique->number];
    clique = op.comm->clique.get();
    here.insert(op.comm->rank);
  }
  const auto str = [](const std::set<int>& all) {
    std::string it;
    for (const int rank : all) it += text(it.empty() ? "" : ", ", rank);
    return it;
  };
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

// The end of a call or of a group: leaves it, and launches what the outermost one holds.
ncclResult_t Library::end_of(Lock& lock, Thread& caller, const char* call) {
  if (--caller.group.depth > 0) return ncclSuccess;
  Group group = std::exchange(caller.group, {});
  const std::vector<CommPtr> comms = group.comms();
  for (const Op& op : group.ops) op.comm->in_group_of = 0;
  if (std::any_of(comms.begin(), comms.end(), [](const CommPtr& comm) { return comm->life != Life::kLive; })) {
    group.error = ncclInvalidArgument;  // ended while in the group, which is noted there
  }
  ncclResult_t later_error = ncclSuccess;
  for (const Op& op : group.ops) {
    if (group.error != ncclSuccess) break;
    if (const auto error = take(kFakeNcclLaunchError, op.comm->rank, op.index)) {
      group.error = strike(*op.comm, *error);
    } else if (const auto later_one = take(kFakeNcclLaterLaunchError, op.comm->rank, op.index)) {
      (group.blocking == false ? later_error : group.error) = strike(*op.comm, *later_one);
    }
  }
  if (group.error != ncclSuccess) {
    for (const CommPtr& comm : comms) fail(*comm, group.error);
    changed_.notify_all();
    return group.error;
  }
  check_driven(caller, group);
  if (comms.empty()) return ncclSuccess;
  if (!runner_.joinable()) runner_ = std::thread([this] { run(); });

  if (!*group.blocking) {
    for (const CommPtr& comm : comms) ++comm->launching, comm->unpolled = call;
    const Time when = later(*comms.front(), comms.front()->issued, 1);
    launches_.push_back({when, std::move(group), later_error});
    wake_.notify_one();
    return ncclInProgress;
  }
  launch(group);
  wake_.notify_one();
  for (const Op& op : group.ops) {
    if (op.comm->error != ncclSuccess) return op.comm->error;
  }
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
    std::string missing;
    for (std::size_t rank = 0; rank < comm->clique->members.size(); ++rank) {
      const CommPtr& other = comm->clique->members[rank];
      const bool here =
          other && other->life == Life::kLive && (other->init == Phase::kArrived || other->init == Phase::kDone);
      if (!here) missing += text(missing.empty() ? "" : ", ", rank);
    }
    const std::string what = comm->init == Phase::kDone ? text(comm->ops.size(), " collectives to complete")
                                                        : text("rank ", missing, " to come: missing group?");
    broken(text(comm->name(), ": ", call, " by ", caller.str(), " has waited ", patience_ms, " ms for ", what));
    fail(*comm, ncclInternalError);
    comm->clique->broken = true;
  }
  return ncclInternalError;
}

void Library::launch(Group& group) {
  for (const CommPtr& comm : group.inits) {
    if (comm->life != Life::kLive || comm->init != Phase::kNone) continue;
    comm->init = Phase::kStarted;
    comm->init_due = later_or_late(*comm, kFakeNcclAtInit, 2);
  }
  for (const Op& op : group.ops) {
    if (op.comm->life == Life::kLive && op.comm->error == ncclSuccess) launch(op);
  }
  for (const CommPtr& comm : group.finalizes) {
    if (comm->life != Life::kLive || comm->finalize != Phase::kNone) continue;
    comm->finalize = Phase::kStarted;
    comm->finalize_due = later_or_late(*comm, kFakeNcclAtFinalize, 3);
  }
}

// ---- collectives

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + bytes && y < x + bytes;
}

ncclResult_t Library::append(Thread& caller, const CommPtr& comm, const Signature& what, const void* send,
                             void* receive, cudaStream_t stream) {
  const std::string who = comm->name();
  if (comm->issuer == 0) comm->issuer = caller.number;
  if (comm->issuer != caller.number) {
    broken(text(who, ": ", what.function, " #", comm->issued, " is issued by ", caller.str(),
                ", those before by thread ", comm->issuer, "; one thread must issue all of a communicator"));
    comm->issuer = caller.number;
  }
  if (const ncclResult_t result = ready(what.function, comm, true); result != ncclSuccess) return result;
  if (comm->finalize != Phase::kNone) return broken(text(who, ": ", what.function, " after ncclCommFinalize"));
  if (what.type < 0 || what.type >= ncclNumTypes)
    return broken(text(who, ": ", what.function, " of datatype ", what.type));
  if (what.op && (*what.op < 0 || *what.op > ncclMin))
    return broken(text(who, ": ", what.function, " with op ", *what.op, ", which the fake lacks"));
  if (what.op && !combine_of(what.type))
    return broken(text(who, ": ", what.function, " of ", kTypes[what.type].name, ", which the fake lacks"));
  const int ranks = static_cast<int>(comm->clique->members.size());
  if (!what.op && (what.root < 0 || what.root >= ranks))
    return broken(text(who, ": ", what.function, " from root ", what.root, " of ", ranks, " ranks"));
  if (what.count == 0) return ncclSuccess;  // NCCL drops it
  const bool sends = what.op || what.root == comm->rank;
  if (!receive || (sends && !send))
    return broken(text(who, ": ", what.function, " #", comm->issued, " with a null buffer"));
  if (sends && send != receive && overlap(send, receive, what.bytes())) {
    return broken(text(who, ": ", what.function, " #", comm->issued, ": sendbuff and recvbuff overlap in part"));
  }
  if (const ncclResult_t result = join(caller, comm); result != ncclSuccess) return result;
  comm->in_group_of = caller.number;
  caller.group.ops.push_back({.comm = comm,
                              .what = what,
                              .index = comm->issued++,
                              .send = sends ? send : nullptr,
                              .receive = receive,
                              .stream = {stream, stream ? -1 : comm->device},
                              .stage = Stage::kLaunched,
                              .due = {}});
  return ncclSuccess;
}

ncclResult_t Library::collective(Lock& lock, Signature what, const void* send, void* receive, ncclComm_t handle,
                                 cudaStream_t stream) {
  Thread& caller = thread();
  CommPtr comm;
  if (const ncclResult_t result = find(what.function, handle, comm); result != ncclSuccess) return result;
  const std::int64_t index = comm->issued;
  ++caller.group.depth;
  const ncclResult_t result = append(caller, comm, what, send, receive, stream);
  if (result != ncclSuccess) refuse(caller, comm, result);
  const ncclResult_t ended = end_of(lock, caller, what.function);
  const ncclResult_t told = result != ncclSuccess ? result : ended;
  const bool known = result == ncclSuccess;
  record(caller, comm.get(), known ? text("#", index, " ", what.str()) : what.function, told);
  return told;
}

// The operation is on its stream from now on.
void Library::launch(const Op& op) {
  Comm& comm = *op.comm;
  Stream& stream = streams_[op.stream];
  if (stream.user && stream.user->device != comm.device) {
    broken(text(comm.name(), ": the stream of ", op.what.function, " #", op.index, " is that of ", stream.user->name(),
                ", on another device"));
    return fail(comm, ncclUnhandledCudaError);
  }
  stream.user = op.comm;
  Clique& clique = *comm.clique;
  for (const CommPtr& other : clique.members) {
    const bool ended =
        other && other->life != Life::kAborted && (other->finalize != Phase::kNone || other->life == Life::kDestroyed);
    if (!ended || other->issued > op.index) continue;
    broken(text(comm.name(), ": ", op.what.function, " #", op.index, ", but rank ", other->rank, " has ended after ",
                other->issued, " collectives"));
    fail(comm, ncclInvalidUsage);
  }
  const auto [at, first] = clique.collectives.try_emplace(op.index, Collective{op.what, comm.rank, 0, 0, {}, {}});
  if (const std::string what = difference(at->second.what, op.what); !what.empty()) {
    broken(text(comm.name(), ": collective #", op.index, " is ", op.what.str(), ", and that of rank ",
                at->second.first_rank, " is ", at->second.what.str(), ": ", what, " differs"));
    for (const CommPtr& member : clique.members) {
      if (member) fail(*member, ncclInvalidUsage);
    }
  }
  stream.ops.emplace_back(&comm, op.index);
  comm.ops.push_back(op);
  comm.ops.back().comm = nullptr;  // which would keep itself alive
}

// ---- the end of a communicator

// A rank that ends must have issued as many collectives as the others.
void Library::check_ends(const char* call, const CommPtr& comm) {
  for (const CommPtr& other : comm->clique->members) {
    if (!other || other->life != Life::kLive || other->issued <= comm->issued) continue;
    broken(text(comm->name(), ": ", call, " after ", comm->issued, " collectives, but rank ", other->rank,
                " has issued ", other->issued));
    fail(*other, ncclInvalidUsage);
  }
}

ncclResult_t Library::finalize(Lock& lock, ncclComm_t handle) {
  constexpr const char* kCall = "ncclCommFinalize";
  if (!handle) return ncclSuccess;
  Thread& caller = thread();
  CommPtr comm;
  if (const ncclResult_t result = find(kCall, handle, comm); result != ncclSuccess) return result;
  ++caller.group.depth;
  ncclResult_t result = ready(kCall, comm, true);
  if (result == ncclSuccess && comm->finalize != Phase::kNone)
    result = broken(text(comm->name(), ": ", kCall, " twice"));
  if (result == ncclSuccess) result = join(caller, comm);
  if (result == ncclSuccess) {
    check_ends(kCall, comm);
    caller.group.finalizes.push_back(comm);
  } else {
    refuse(caller, comm, result);
  }
  const ncclResult_t ended = end_of(lock, caller, kCall);
  const ncclResult_t told = result != ncclSuccess ? result : ended;
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
  if (const auto late = take(kFakeNcclLate, comm->rank, kFakeNcclAtAbort)) {
    comm->inside = caller.number, comm->inside_call = kCall;
    changed_.wait_for(lock, std::chrono::milliseconds(*late), [] { return false; });
    comm->inside = 0;
    if (comm->life != Life::kLive) return ncclInvalidArgument;  // twice, which is noted
  }
  end(comm, Life::kAborted);
  record(caller, comm.get(), kCall, ncclSuccess);
  return ncclSuccess;
}

// Frees all that is the communicator's; nothing touches its buffers any more.
void Library::end(const CommPtr& comm, Life life) {
  comm->life = life;
  if (life == Life::kAborted) comm->clique->broken = true;
  comm->ops.clear();
  for (auto& [key, stream] : streams_) {
    std::erase_if(stream.ops, [&](const auto& op) { return op.first == comm.get(); });
    if (stream.user == comm) stream.user = nullptr;
  }
  std::erase(live_, comm);
  wake_.notify_one();
  changed_.notify_all();
}

// ---- the background thread

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

bool Library::due(Time time) {
  if (time <= now_) return true;
  next_ = std::min(next_, time);
  return false;
}

// Does all that is due; next_ says when to come again.
void Library::move_on() {
  now_ = Clock::now();
  next_ = Time::max();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < launches_.size();) {
      if (!due(launches_[i].due)) {
        ++i;
        continue;
      }
      Launch launched = std::move(launches_[i]);
      launches_.erase(launches_.begin() + static_cast<std::ptrdiff_t>(i));
      for (const CommPtr& comm : launched.group.comms()) {
        --comm->launching;
        if (launched.error != ncclSuccess) fail(*comm, launched.error);
      }
      if (launched.error == ncclSuccess) launch(launched.group);
      moved = true;
    }
    for (const CommPtr& comm : live_) {
      if (comm->error != ncclSuccess) continue;
      if (move_init(*comm) || move_op(*comm) || move_finalize(*comm)) moved = true;
    }
  }
}

bool Library::move_init(Comm& comm) {
  Clique& clique = *comm.clique;
  if (comm.init == Phase::kStarted && due(comm.init_due)) {
    if (take(kFakeNcclHang, comm.rank, kFakeNcclAtInit)) {
      comm.init = Phase::kStuck;
    } else if (const auto error = take(kFakeNcclError, comm.rank, kFakeNcclAtInit)) {
      comm.init = Phase::kStuck;
      fail(comm, strike(comm, *error));
    } else {
      comm.init = Phase::kArrived;
      comm.init_due = later(comm, kFakeNcclAtInit, 4);
      ++clique.arrived;
    }
    return true;
  }
  const bool all = clique.arrived == static_cast<int>(clique.members.size()) && !clique.broken;
  if (comm.init != Phase::kArrived || !all || !due(comm.init_due)) return false;
  comm.init = Phase::kDone;
  return true;
}

bool Library::move_op(Comm& comm) {
  if (comm.ops.empty()) return false;
  Op& op = comm.ops.front();
  Collective& shared = comm.clique->collectives.at(op.index);
  const std::size_t ranks = comm.clique->members.size();
  switch (op.stage) {
    case Stage::kLaunched:
      if (streams_.at(op.stream).ops.front() != std::pair<const Comm*, std::int64_t>(&comm, op.index)) return false;
      op.due = later_or_late(comm, op.index, 5);
      op.stage = Stage::kDelayed;
      return true;
    case Stage::kDelayed:
      if (!due(op.due)) return false;
      op.stage = Stage::kStuck;
      if (take(kFakeNcclHang, comm.rank, op.index)) return true;
      if (const auto error = take(kFakeNcclError, comm.rank, op.index)) {
        fail(comm, strike(comm, *error));
        return true;
      }
      op.stage = Stage::kArrived;
      shared.inputs.resize(ranks);
      if (op.send) {
        const auto* const begin = static_cast<const unsigned char*>(op.send);
        shared.inputs[comm.rank].assign(begin, begin + op.what.bytes());
      }
      if (++shared.arrived == static_cast<int>(ranks) && !comm.clique->broken) {
        Bytes& result = shared.result.emplace(std::move(shared.inputs[op.what.op ? 0 : op.what.root]));
        for (std::size_t rank = 1; op.what.op && rank < ranks; ++rank) {
          combine_of(op.what.type)(result, shared.inputs[rank], *op.what.op);
        }
        shared.inputs.clear();
      }
      return true;
    case Stage::kArrived:
      if (!shared.result) return false;
      op.due = later(comm, op.index, 6);
      op.stage = Stage::kDelivering;
      return true;
    case Stage::kDelivering:
      if (!due(op.due)) return false;
      deliver(comm, op);
      return true;
    case Stage::kStuck:
      return false;
  }
  return false;
}

void Library::deliver(Comm& comm, Op& op) {
  const std::int64_t index = op.index;
  Collective& shared = comm.clique->collectives.at(index);
  auto* const to = static_cast<unsigned char*>(op.receive);
  std::memcpy(to, shared.result->data(), shared.result->size());
  if (const auto bit = take(kFakeNcclCorrupt, comm.rank, index)) {
    const std::uint64_t at = static_cast<std::uint64_t>(*bit) % (shared.result->size() * 8);
    to[at / 8] ^= static_cast<unsigned char>(1u << (at % 8));
  }
  streams_.at(op.stream).ops.pop_front();
  comm.ops.pop_front();
  if (++shared.delivered == static_cast<int>(comm.clique->members.size())) comm.clique->collectives.erase(index);
}

bool Library::move_finalize(Comm& comm) {
  if (comm.finalize != Phase::kStarted || !comm.ops.empty() || comm.launching > 0 || !due(comm.finalize_due)) {
    return false;
  }
  comm.finalize = take(kFakeNcclHang, comm.rank, kFakeNcclAtFinalize) ? Phase::kStuck : Phase::kDone;
  if (const auto error = take(kFakeNcclError, comm.rank, kFakeNcclAtFinalize)) {
    fail(comm, strike(comm, *error));
  }
  return true;
}

// ---- questions and control

ncclResult_t Library::ask(const char* call, ncclComm_t handle, int* out, int Comm::*field) {
  CommPtr comm;
  if (const ncclResult_t result = find(call, handle, comm, true); result != ncclSuccess) return result;
  if (!out) return broken(text(comm->name(), ": ", call, " into a null pointer"));
  if (const ncclResult_t result = ready(call, comm, false); result != ncclSuccess) return result;
  *out = field ? (*comm).*field : static_cast<int>(comm->clique->members.size());
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
  seed = 0, max_us = 0, patience_ms = kPatience;
  for (const auto& [handle, comm] : comms_) {
    comm->clique->members.clear();  // they point to each other
  }
  callers_.clear(), cliques_.clear(), comms_.clear(), live_.clear(), launches_.clear(), streams_.clear();
  violations.clear(), events.clear(), faults.clear(), last_error.clear();
  changed_.notify_all();
}

char* joined(const auto& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return ::strdup(all.c_str());
}

}  // namespace

// ---- NCCL

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = kVersion;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

// As NCCL's: the last error of any communicator. The text stays valid as long as the library is open.
const char* ncclGetLastError(ncclComm_t) {
  Lock lock(library().mutex);
  return library().told_errors.insert(library().last_error).first->c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Lock lock(library().mutex);
  return library().unique_id(id);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Lock lock(library().mutex);
  return library().init(lock, "ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  Lock lock(library().mutex);
  return library().init(lock, "ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().finalize(lock, comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().destroy(lock, comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().abort(lock, comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  Lock lock(library().mutex);
  return library().async_error(comm, result);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  Lock lock(library().mutex);
  return library().ask("ncclCommCount", comm, count, nullptr);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  Lock lock(library().mutex);
  return library().ask("ncclCommCuDevice", comm, device, &Comm::device);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  Lock lock(library().mutex);
  return library().ask("ncclCommUserRank", comm, rank, &Comm::rank);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  Lock lock(library().mutex);
  return library().collective(lock, {"ncclAllReduce", count, type, op, -1}, send, receive, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  Lock lock(library().mutex);
  return library().collective(lock, {"ncclBroadcast", count, type, {}, root}, send, receive, comm, stream);
}

ncclResult_t ncclGroupStart() {
  Lock lock(library().mutex);
  library().group_start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Lock lock(library().mutex);
  return library().group_end(lock);
}

// ---- the control interface

void fake_nccl_reset() { library().reset(); }

void fake_nccl_set_delay(std::uint64_t seed, int max_us) {
  Lock lock(library().mutex);
  library().seed = seed;
  library().max_us = std::max(max_us, 0);
}

void fake_nccl_set_patience(int ms) {
  Lock lock(library().mutex);
  library().patience_ms = ms;
}

void fake_nccl_set_device(int device) {
  Lock lock(library().mutex);
  library().thread().device = device;
}

bool fake_nccl_inject(FakeNcclFault fault, int rank, std::int64_t at, std::int64_t value) {
  const bool collective = at >= 0, an_error = value > ncclSuccess && value < ncclInProgress;
  const bool comes_to_an_end = collective || at == kFakeNcclAtInit || at == kFakeNcclAtFinalize;
  bool known = false;
  switch (fault) {
    case kFakeNcclError:
      known = comes_to_an_end && an_error;
      break;
    case kFakeNcclHang:
      known = comes_to_an_end;
      break;
    case kFakeNcclLate:
      known = (comes_to_an_end || at == kFakeNcclAtAbort) && value >= 0;
      break;
    case kFakeNcclLaunchError:
    case kFakeNcclLaterLaunchError:
      known = collective && an_error;
      break;
    case kFakeNcclCorrupt:
      known = collective && value >= 0;
      break;
  }
  if (!known || rank < 0) return false;
  Lock lock(library().mutex);
  library().faults.push_back({fault, rank, at, value});
  return true;
}

bool fake_nccl_stream_done(const void* stream) {
  Lock lock(library().mutex);
  return library().stream_done(stream);
}

char* fake_nccl_violations() {
  Lock lock(library().mutex);
  return joined(library().violations);
}

char* fake_nccl_live() {
  Lock lock(library().mutex);
  return ::strdup(library().live().c_str());
}

char* fake_nccl_events() {
  Lock lock(library().mutex);
  return joined(library().events);
}
}
