// The fake NCCL as its tests see it: the library with its functions, and a clique of ranks.
//
// A test makes an Nccl, then its Cliques: the buffers of a Clique go while the library is still open, and after nothing
// in it can touch them any more.
#pragma once

#include "tests/fake_nccl/fake_nccl.h"

#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace lanewise {

constexpr std::uint64_t kFakeNcclSeed = 20;

// The library, opened as libnccl.so.2 would be and closed again; nothing is left in it before and after. NCCL's
// functions and those of fake_nccl.h are members, under shorter names.
class Nccl {
 public:
  Nccl() { reset(); }
  ~Nccl() {
    reset();
    ::dlclose(library_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::string violations() const { return taken(violations_()); }
  std::string live() const { return taken(live_()); }
  std::string events() const { return taken(events_()); }

  ncclResult_t async_error(ncclComm_t comm) const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = get_async_error(comm, &state);
    return result == ncclSuccess ? state : result;
  }
  ncclUniqueId unique_id() const {
    ncclUniqueId id;
    REQUIRE(get_unique_id(&id) == ncclSuccess);
    return id;
  }

 private:
  struct Symbol {
    void* at;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(at);
    }
  };
  Symbol symbol(const char* name) const {
    void* const at = ::dlsym(library_, name);
    REQUIRE_MESSAGE(at != nullptr, name);
    return {at};
  }
  static void* opened() {
    const char* const path = std::getenv("FAKE_NCCL");
    REQUIRE_MESSAGE(path != nullptr, "FAKE_NCCL must name the fake library");
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    return library;
  }
  static std::string taken(char* text) {
    const std::string copy = text;
    std::free(text);
    return copy;
  }

  void* const library_ = opened();  // before the members below, which look into it

 public:
  decltype(&ncclGetVersion) get_version = symbol("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id = symbol("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_config = symbol("ncclCommInitRankConfig");
  decltype(&ncclCommInitRank) init_rank = symbol("ncclCommInitRank");
  decltype(&ncclCommFinalize) finalize = symbol("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = symbol("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = symbol("ncclCommAbort");
  decltype(&ncclGetErrorString) error_string = symbol("ncclGetErrorString");
  decltype(&ncclGetLastError) last_error = symbol("ncclGetLastError");
  decltype(&ncclCommGetAsyncError) get_async_error = symbol("ncclCommGetAsyncError");
  decltype(&ncclCommCount) count = symbol("ncclCommCount");
  decltype(&ncclCommCuDevice) device = symbol("ncclCommCuDevice");
  decltype(&ncclCommUserRank) user_rank = symbol("ncclCommUserRank");
  decltype(&ncclAllReduce) all_reduce = symbol("ncclAllReduce");
  decltype(&ncclBroadcast) broadcast = symbol("ncclBroadcast");
  decltype(&ncclGroupStart) group_start = symbol("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = symbol("ncclGroupEnd");

  decltype(&fake_nccl_reset) reset = symbol("fake_nccl_reset");
  decltype(&fake_nccl_set_delay) set_delay = symbol("fake_nccl_set_delay");
  decltype(&fake_nccl_set_patience) set_patience = symbol("fake_nccl_set_patience");
  decltype(&fake_nccl_set_device) set_device = symbol("fake_nccl_set_device");
  decltype(&fake_nccl_inject) inject = symbol("fake_nccl_inject");
  decltype(&fake_nccl_stream_done) stream_done = symbol("fake_nccl_stream_done");
  decltype(&fake_nccl_open_stream) open_stream = symbol("fake_nccl_open_stream");
  decltype(&fake_nccl_stream_launched) stream_launched = symbol("fake_nccl_stream_launched");
  decltype(&fake_nccl_stream_completed) stream_completed = symbol("fake_nccl_stream_completed");

 private:
  decltype(&fake_nccl_violations) violations_ = symbol("fake_nccl_violations");
  decltype(&fake_nccl_live) live_ = symbol("fake_nccl_live");
  decltype(&fake_nccl_events) events_ = symbol("fake_nccl_events");
};

// Whether this comes to be true; it has ten seconds.
inline bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 100000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

inline void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

inline ncclConfig_t nccl_config(bool blocking) {
  ncclConfig_t it = NCCL_CONFIG_INITIALIZER;
  it.blocking = blocking ? 1 : 0;
  return it;
}

// One of sixteen.
inline cudaStream_t stream(int number) {
  static char places[16];
  return reinterpret_cast<cudaStream_t>(&places[number]);
}

// The ranks of a clique, each with a stream and four floats, all driven by the thread that makes it.
struct Clique {
  Clique(const Nccl& library, int ranks, bool blocking = false) : nccl(library), comms(ranks) {
    for (int rank = 0; rank < ranks; ++rank) values.emplace_back(4, static_cast<float>(rank + 1));
    const ncclUniqueId id = nccl.unique_id();
    ncclConfig_t how = nccl_config(blocking);
    nccl.group_start();
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(nccl.init_config(&comms[rank], ranks, id, rank, &how) == ncclSuccess);
    }
    end = nccl.group_end();
  }
  ~Clique() {
    if (nccl.live() != "") nccl.reset();  // before the buffers go
  }
  int ranks() const { return static_cast<int>(comms.size()); }
  bool all_are(ncclResult_t state) const {
    for (const ncclComm_t comm : comms) {
      if (nccl.async_error(comm) != state) return false;
    }
    return true;
  }
  bool ready() const {
    return eventually([&] { return all_are(ncclSuccess); });
  }
  ncclResult_t all_reduce(int rank) { return all_reduce(rank, stream(rank)); }
  ncclResult_t all_reduce(int rank, cudaStream_t on) {
    return nccl.all_reduce(values[rank].data(), values[rank].data(), 4, ncclFloat32, ncclSum, comms[rank], on);
  }
  ncclResult_t step() {  // one in-place sum of all
    nccl.group_start();
    for (int rank = 0; rank < ranks(); ++rank) CHECK(all_reduce(rank) == ncclSuccess);
    return nccl.group_end();
  }
  bool done(int rank) const { return nccl.stream_done(stream(rank)); }
  bool done() const {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!done(rank)) return false;
    }
    return true;
  }
  bool finished() const {
    return ready() && eventually([&] { return done(); });
  }
  void abort() {
    for (const ncclComm_t comm : comms) CHECK(nccl.abort(comm) == ncclSuccess);
  }
  void close() {
    for (const ncclComm_t comm : comms) nccl.finalize(comm);
    CHECK(ready());
    for (const ncclComm_t comm : comms) CHECK(nccl.destroy(comm) == ncclSuccess);
    CHECK(nccl.live() == "");
  }

  const Nccl& nccl;
  std::vector<ncclComm_t> comms;
  std::vector<std::vector<float>> values;
  ncclResult_t end;  // what ncclGroupEnd said at init
};

}  // namespace lanewise
