// The fake NCCL itself: the rules it holds its callers to, what it computes, and the faults it plays.
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/check.h"
#include "tests/fake_nccl/fake_nccl.h"

namespace {

constexpr std::uint64_t kSeed = 20;

// The library, opened as libnccl.so.2 would be and closed again.
class Nccl {
 public:
  Nccl() { reset(); }
  ~Nccl() {
    reset();
    ::dlclose(library_);
  }

  static std::string taken(char* text) {
    const std::string copy = text;
    std::free(text);
    return copy;
  }
  std::string violations() const { return taken(violations_()); }
  std::string live() const { return taken(live_()); }
  std::string events() const { return taken(events_()); }

 private:
  static void* opened() {
    const char* const path = std::getenv("FAKE_NCCL");
    REQUIRE_MESSAGE(path != nullptr, "FAKE_NCCL must name the fake library");
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    return library;
  }
  template <class F>
  F symbol(const char* name) const {
    void* const at = ::dlsym(library_, name);
    REQUIRE_MESSAGE(at != nullptr, name);
    return reinterpret_cast<F>(at);
  }

  void* library_ = opened();

 public:
  decltype(&ncclGetVersion) get_version = symbol<decltype(&ncclGetVersion)>("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id = symbol<decltype(&ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_config = symbol<decltype(&ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(&ncclCommInitRank) init_rank = symbol<decltype(&ncclCommInitRank)>("ncclCommInitRank");
  decltype(&ncclCommFinalize) finalize = symbol<decltype(&ncclCommFinalize)>("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = symbol<decltype(&ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = symbol<decltype(&ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclGetErrorString) error_string = symbol<decltype(&ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGetLastError) last_error = symbol<decltype(&ncclGetLastError)>("ncclGetLastError");
  decltype(&ncclCommGetAsyncError) get_async_error = symbol<decltype(&ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclCommCount) count = symbol<decltype(&ncclCommCount)>("ncclCommCount");
  decltype(&ncclCommCuDevice) device = symbol<decltype(&ncclCommCuDevice)>("ncclCommCuDevice");
  decltype(&ncclCommUserRank) user_rank = symbol<decltype(&ncclCommUserRank)>("ncclCommUserRank");
  decltype(&ncclAllReduce) all_reduce = symbol<decltype(&ncclAllReduce)>("ncclAllReduce");
  decltype(&ncclBroadcast) broadcast = symbol<decltype(&ncclBroadcast)>("ncclBroadcast");
  decltype(&ncclGroupStart) group_start = symbol<decltype(&ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = symbol<decltype(&ncclGroupEnd)>("ncclGroupEnd");

  decltype(&fake_nccl_reset) reset = symbol<decltype(&fake_nccl_reset)>("fake_nccl_reset");
  decltype(&fake_nccl_set_delay) set_delay = symbol<decltype(&fake_nccl_set_delay)>("fake_nccl_set_delay");
  decltype(&fake_nccl_set_patience) set_patience = symbol<decltype(&fake_nccl_set_patience)>("fake_nccl_set_patience");
  decltype(&fake_nccl_set_device) set_device = symbol<decltype(&fake_nccl_set_device)>("fake_nccl_set_device");
  decltype(&fake_nccl_inject) inject = symbol<decltype(&fake_nccl_inject)>("fake_nccl_inject");
  decltype(&fake_nccl_stream_done) stream_done = symbol<decltype(&fake_nccl_stream_done)>("fake_nccl_stream_done");

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
  decltype(&fake_nccl_violations) violations_ = symbol<decltype(&fake_nccl_violations)>("fake_nccl_violations");
  decltype(&fake_nccl_live) live_ = symbol<decltype(&fake_nccl_live)>("fake_nccl_live");
  decltype(&fake_nccl_events) events_ = symbol<decltype(&fake_nccl_events)>("fake_nccl_events");
};

// Whether this comes to be true; it has ten seconds.
bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 100000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

ncclConfig_t config(bool blocking) {
  ncclConfig_t it = NCCL_CONFIG_INITIALIZER;
  it.blocking = blocking ? 1 : 0;
  return it;
}

char places[16];
cudaStream_t stream(int number) { return reinterpret_cast<cudaStream_t>(&places[number]); }

// The ranks of a clique, each with a stream and four floats, all driven by the thread that makes it.
struct Clique {
  Clique(const Nccl& library, int ranks, bool blocking = false) : nccl(library), comms(ranks) {
    for (int rank = 0; rank < ranks; ++rank) values.emplace_back(4, static_cast<float>(rank + 1));
    const ncclUniqueId id = nccl.unique_id();
    ncclConfig_t how = config(blocking);
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
  ncclResult_t all_reduce(int rank) {
    return nccl.all_reduce(values[rank].data(), values[rank].data(), 4, ncclFloat32, ncclSum, comms[rank],
                           stream(rank));
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

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

template <class T>
void check_type(const Nccl& nccl, ncclDataType_t type, std::uint64_t seed) {
  std::uint64_t random = seed;
  const auto next = [&] { return random = random * 6364136223846793005u + 1442695040888963407u; };
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) {
    Clique clique(nccl, 3);
    REQUIRE(clique.ready());
    std::vector<std::vector<T>> in(3), out(3, std::vector<T>(100));
    for (std::vector<T>& values : in) {
      for (int i = 0; i < 100; ++i) values.push_back(static_cast<T>(next() >> 40) / static_cast<T>(1 + i % 2 * 2));
    }
    // In rank order; integers of fewer than 64 bits wrap around.
    std::vector<T> right = in[0];
    for (int rank = 1; rank < 3; ++rank) {
      for (int i = 0; i < 100; ++i) {
        const T a = right[i], b = in[rank][i];
        if (op == ncclMax || op == ncclMin) {
          right[i] = (a < b) == (op == ncclMax) ? b : a;
        } else if constexpr (std::is_integral_v<T>) {
          const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
          right[i] = static_cast<T>(op == ncclSum ? x + y : x * y);
        } else {
          right[i] = op == ncclSum ? a + b : a * b;
        }
      }
    }
    const std::vector<std::vector<T>> untouched = in;
    nccl.group_start();
    for (int rank = 0; rank < 3; ++rank) {
      nccl.all_reduce(in[rank].data(), out[rank].data(), 100, type, op, clique.comms[rank], stream(rank));
    }
    CHECK(nccl.group_end() == ncclInProgress);
    REQUIRE(clique.finished());
    CHECK(in == untouched);
    for (const std::vector<T>& values : out) {
      CHECK(std::memcmp(values.data(), right.data(), right.size() * sizeof(T)) == 0);
    }
    // In place, and from one to all.
    nccl.group_start();
    for (int rank = 0; rank < 3; ++rank) {
      T* const data = in[rank].data();
      nccl.all_reduce(data, data, 100, type, op, clique.comms[rank], stream(rank));
      nccl.broadcast(rank == 1 ? untouched[1].data() : nullptr, out[rank].data(), 50, type, 1, clique.comms[rank],
                     stream(rank));
    }
    CHECK(nccl.group_end() == ncclInProgress);
    REQUIRE(clique.finished());
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(std::memcmp(in[rank].data(), right.data(), right.size() * sizeof(T)) == 0);
      CHECK(std::equal(out[rank].begin(), out[rank].begin() + 50, untouched[1].begin()));
      CHECK(std::equal(out[rank].begin() + 50, out[rank].end(), right.begin() + 50));
    }
    clique.close();
  }
}

}  // namespace

TEST_CASE("fake nccl: it says it is NCCL 2.28.9, and names results as NCCL does") {
  const Nccl nccl;
  int version = 0;
  CHECK(nccl.get_version(&version) == ncclSuccess);
  CHECK(version == 22809);
  CHECK(nccl.error_string(ncclRemoteError) == std::string("remote process exited or there was a network error"));
  CHECK(nccl.error_string(ncclInProgress) == std::string("NCCL operation in progress"));
  CHECK(nccl.last_error(nullptr) == std::string(""));
}

TEST_CASE("fake nccl: every rank gets the same bits, combined in rank order in the type's own precision") {
  const Nccl nccl;
  CAPTURE(kSeed);
  nccl.set_delay(kSeed, 300);
  check_type<float>(nccl, ncclFloat32, kSeed);
  check_type<double>(nccl, ncclFloat64, kSeed);
  check_type<std::int32_t>(nccl, ncclInt32, kSeed);
  check_type<std::int64_t>(nccl, ncclInt64, kSeed);
  check_type<std::uint8_t>(nccl, ncclUint8, kSeed);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: a non-blocking communicator is in progress until all ranks have come") {
  const Nccl nccl;
  const ncclUniqueId id = nccl.unique_id();
  ncclConfig_t how = config(false);
  ncclComm_t first = nullptr, second = nullptr;
  CHECK(nccl.init_config(&first, 2, id, 0, &how) == ncclInProgress);
  pause_ms(10);
  CHECK(nccl.async_error(first) == ncclInProgress);
  CHECK(nccl.live() == "rank 0: ncclInProgress, 0 collectives to complete\n");
  std::thread([&] {
    nccl.set_device(5);
    CHECK(nccl.init_config(&second, 2, id, 1, &how) == ncclInProgress);
  }).join();
  CHECK(eventually([&] { return nccl.async_error(first) == ncclSuccess; }));
  CHECK(eventually([&] { return nccl.async_error(second) == ncclSuccess; }));
  int count = 0, device = 0, rank = 0, device_of_first = -1;
  CHECK(nccl.count(second, &count) == ncclSuccess);
  CHECK(nccl.device(second, &device) == ncclSuccess);
  CHECK(nccl.device(first, &device_of_first) == ncclSuccess);
  CHECK(nccl.user_rank(second, &rank) == ncclSuccess);
  CHECK(count == 2);
  CHECK(device == 5);
  CHECK(device_of_first == 0);
  CHECK(rank == 1);
  CHECK(nccl.violations() == "");
  CHECK(nccl.live() ==
        "rank 0: ready, 0 collectives to complete\n"
        "rank 1: ready, 0 collectives to complete\n");
}

TEST_CASE("fake nccl: blocking communicators, a thread for each rank, sum many times in order") {
  const Nccl nccl;
  CAPTURE(kSeed);
  nccl.set_delay(kSeed, 200);
  const ncclUniqueId id = nccl.unique_id();
  std::vector<std::vector<double>> sums(3);
  std::vector<std::thread> all;
  for (int rank = 0; rank < 3; ++rank) {
    all.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      CHECK(nccl.init_rank(&comm, 3, id, rank) == ncclSuccess);
      std::vector<double> values(20);
      for (int i = 0; i < 20; ++i) {
        values[i] = rank + 10 * i;
        CHECK(nccl.all_reduce(&values[i], &values[i], 1, ncclFloat64, ncclSum, comm, stream(rank)) == ncclSuccess);
      }
      CHECK(nccl.finalize(comm) == ncclSuccess);  // waits for them
      CHECK(nccl.stream_done(stream(rank)));
      CHECK(nccl.destroy(comm) == ncclSuccess);
      sums[rank] = values;
    });
  }
  for (std::thread& each : all) each.join();
  for (int i = 0; i < 20; ++i) CHECK(sums[0][i] == 3 + 30 * i);
  CHECK(sums[1] == sums[0]);
  CHECK(sums[2] == sums[0]);
  CHECK(nccl.violations() == "");
  CHECK(nccl.live() == "");
}

TEST_CASE("fake nccl: a result appears when all have arrived, and a stream completes in order") {
  const Nccl nccl;
  Clique clique(nccl, 2, true);
  CHECK(nccl.inject(kFakeNcclLate, 1, 0, 5));
  CHECK(nccl.stream_done(stream(9)));
  for (int i = 0; i < 2; ++i) CHECK(clique.all_reduce(0) == ncclSuccess);
  pause_ms(10);
  CHECK_FALSE(clique.done(0));
  CHECK(clique.done(1));
  CHECK(clique.values[0][0] == 1);
  std::thread([&] {
    for (int i = 0; i < 2; ++i) CHECK(clique.all_reduce(1) == ncclSuccess);
  }).join();
  REQUIRE(clique.finished());
  CHECK(clique.values[0] == std::vector<float>(4, 6));
  CHECK(clique.values[1] == std::vector<float>(4, 6));
  CHECK(nccl.violations() == "");
  clique.close();
}

TEST_CASE("fake nccl: two communicators on a device's one stream take turns") {
  const Nccl nccl;
  Clique a(nccl, 2), b(nccl, 2);
  REQUIRE(a.ready());
  REQUIRE(b.ready());
  CHECK(nccl.inject(kFakeNcclHang, 0, 0, 0));
  for (Clique* each : {&a, &b}) {
    CHECK(each->step() == ncclInProgress);
    CHECK(each->ready());
  }
  pause_ms(10);
  CHECK(b.values[0][0] == 1);
  CHECK(b.values[1][0] == 2);
  a.abort();
  CHECK(b.finished());
  CHECK(b.values[0][0] == 3);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: until a non-blocking group is launched its streams look empty, as in CUDA") {
  const Nccl nccl;
  CAPTURE(kSeed);
  nccl.set_delay(kSeed, 2000);
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  bool seen = false;
  for (int i = 0; i < 30 && !seen; ++i) {
    CHECK(clique.step() == ncclInProgress);
    const bool done = clique.done(0);
    if (nccl.async_error(clique.comms[0]) == ncclInProgress) {
      CHECK(done);
      seen = true;
    }
    CHECK(clique.finished());
  }
  CHECK(seen);
}

TEST_CASE("fake nccl: collectives of no elements are dropped, as NCCL drops them") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(nccl.all_reduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, clique.comms[0], stream(0)) == ncclSuccess);
  CHECK(clique.step() == ncclInProgress);
  CHECK(clique.finished());
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: ranks of one thread outside a group are a missing group") {
  const Nccl nccl;
  SUBCASE("collectives") {
    Clique clique(nccl, 2);
    REQUIRE(clique.ready());
    for (int i = 0; i < 2; ++i) {
      for (int rank = 0; rank < 2; ++rank) CHECK(clique.all_reduce(rank) == ncclInProgress);
      CHECK(clique.finished());
    }
    CHECK(nccl.violations() ==
          "missing group: thread 1 launches collectives of rank 1 apart from those of rank 0; one group must hold all "
          "ranks of a thread\n");
  }
  SUBCASE("non-blocking init") {
    const ncclUniqueId id = nccl.unique_id();
    ncclConfig_t how = config(false);
    ncclComm_t comms[2];
    for (int rank = 0; rank < 2; ++rank) CHECK(nccl.init_config(&comms[rank], 2, id, rank, &how) == ncclInProgress);
    CHECK(nccl.violations() ==
          "missing group: thread 1 initialises rank 1 apart from rank 0; one group must hold all ranks of a thread\n");
  }
  SUBCASE("blocking init, which would wait for ever") {
    nccl.set_patience(30);
    ncclComm_t comm = nullptr;
    CHECK(nccl.init_rank(&comm, 3, nccl.unique_id(), 1) == ncclInternalError);
    CHECK(nccl.violations() ==
          "rank 1: ncclCommInitRank by thread 1 has waited 30 ms for rank 0, 2 to come: missing group?\n");
    CHECK(nccl.abort(comm) == ncclSuccess);
  }
}

TEST_CASE("fake nccl: a group holds only what its own thread issues") {
  const Nccl nccl;
  Clique clique(nccl, 2, true);
  CHECK(clique.end == ncclSuccess);
  nccl.group_start();
  std::thread([&] { CHECK(clique.all_reduce(0) == ncclSuccess); }).join();
  std::thread([&] { CHECK(clique.all_reduce(1) == ncclSuccess); }).join();
  CHECK(clique.finished());
  CHECK(nccl.live().ends_with("thread 1: open group 2\n"));
  std::thread([&] { CHECK(nccl.group_end() == ncclInvalidUsage); }).join();
  CHECK(nccl.group_end() == ncclSuccess);
  CHECK(nccl.violations() == "thread 4: ncclGroupEnd without ncclGroupStart\n");
}

TEST_CASE("fake nccl: a second thread that issues for a communicator is named with the first") {
  const Nccl nccl;
  Clique clique(nccl, 2, true);
  CHECK(clique.step() == ncclSuccess);
  std::thread([&] { CHECK(clique.step() == ncclSuccess); }).join();
  CHECK(nccl.violations() ==
        "rank 0: ncclAllReduce #1 is issued by thread 2, those before by thread 1; one thread must issue all of a "
        "communicator\n"
        "rank 1: ncclAllReduce #1 is issued by thread 2, those before by thread 1; one thread must issue all of a "
        "communicator\n");
}

TEST_CASE("fake nccl: nothing may be enqueued before the end of the last operation was told") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  CHECK(clique.end == ncclInProgress);
  SUBCASE("in progress, the call is refused and the communicator is in error") {
    int rank = 0;
    REQUIRE(clique.ready());  // lest it takes the fault
    CHECK(nccl.inject(kFakeNcclHang, 0, kFakeNcclAtInit, 0));
    Clique late(nccl, 2);
    CHECK(nccl.user_rank(late.comms[0], &rank) == ncclInvalidArgument);
    CHECK(late.all_reduce(0) == ncclInvalidArgument);
    CHECK(nccl.async_error(late.comms[0]) == ncclInvalidArgument);
    CHECK(nccl.violations() ==
          "rank 0 of clique 2: ncclCommUserRank before ncclCommGetAsyncError has told the end of ncclGroupEnd\n"
          "rank 0 of clique 2: ncclAllReduce before ncclCommGetAsyncError has told the end of ncclGroupEnd\n");
    CHECK(
        nccl.last_error(nullptr) ==
        std::string("rank 0 of clique 2: ncclAllReduce before ncclCommGetAsyncError has told the end of ncclGroupEnd"));
  }
  SUBCASE("at an end but not asked, it is noted") {
    REQUIRE(clique.ready());
    CHECK(nccl.inject(kFakeNcclHang, 1, 0, 0));
    CHECK(clique.step() == ncclInProgress);
    CHECK(eventually([&] { return !clique.done(1); }));  // it has been launched
    CHECK(nccl.async_error(clique.comms[0]) == ncclSuccess);
    CHECK(clique.step() == ncclInProgress);
    CHECK(nccl.violations() == "rank 1: ncclAllReduce before ncclCommGetAsyncError has told the end of ncclGroupEnd\n");
  }
}

TEST_CASE("fake nccl: what differs between ranks is named, and all have an error instead of a hang") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.finished());
  double a[4] = {}, b[4] = {};
  const auto both = [&](const auto& first, const auto& second) {
    nccl.group_start();
    first(clique.comms[0], stream(0));
    second(clique.comms[1], stream(1));
    CHECK(nccl.group_end() == ncclInProgress);
    CHECK(eventually([&] { return clique.all_are(ncclInvalidUsage); }));
    CHECK_FALSE(clique.done());
    clique.abort();
    CHECK(clique.done());
  };
  const auto sum = [&](void* data, int count, ncclDataType_t type, ncclRedOp_t op) {
    return [=, &nccl](ncclComm_t comm, cudaStream_t on) { nccl.all_reduce(data, data, count, type, op, comm, on); };
  };
  const auto from = [&](void* data, int root) {
    return [=, &nccl](ncclComm_t comm, cudaStream_t on) { nccl.broadcast(data, data, 4, ncclFloat64, root, comm, on); };
  };
  SUBCASE("count, datatype and op") {
    both(sum(a, 4, ncclFloat64, ncclSum), sum(b, 3, ncclFloat32, ncclMax));
    CHECK(nccl.violations() ==
          "rank 1: collective #1 is ncclAllReduce(3 float32 max), and that of rank 0 is ncclAllReduce(4 float64 sum): "
          "count, datatype, op differs\n");
  }
  SUBCASE("function") {
    both(sum(a, 4, ncclFloat64, ncclSum), from(b, 0));
    CHECK(nccl.violations() ==
          "rank 1: collective #1 is ncclBroadcast(4 float64 from root 0), and that of rank 0 is ncclAllReduce(4 "
          "float64 sum): function differs\n");
  }
  SUBCASE("root") {
    both(from(a, 0), from(b, 1));
    CHECK(nccl.violations() ==
          "rank 1: collective #1 is ncclBroadcast(4 float64 from root 1), and that of rank 0 is ncclBroadcast(4 "
          "float64 from root 0): root differs\n");
  }
}

TEST_CASE("fake nccl: a rank that ends with fewer collectives than another is named") {
  const Nccl nccl;
  Clique clique(nccl, 2, true);
  CHECK(clique.step() == ncclSuccess);
  REQUIRE(clique.finished());
  SUBCASE("before the other goes on") {
    CHECK(nccl.finalize(clique.comms[1]) == ncclSuccess);
    CHECK(clique.all_reduce(0) == ncclInvalidUsage);
    CHECK(nccl.violations() ==
          "missing group: thread 1 launches collectives of rank 0 apart from those of rank 0, 1; one group must hold "
          "all ranks of a thread\n"
          "rank 0: ncclAllReduce #1, but rank 1 has ended after 1 collectives\n");
  }
  SUBCASE("after it") {
    CHECK(clique.all_reduce(0) == ncclSuccess);
    CHECK(nccl.destroy(clique.comms[1]) == ncclSuccess);
    CHECK(nccl.violations() ==
          "missing group: thread 1 launches collectives of rank 0 apart from those of rank 0, 1; one group must hold "
          "all ranks of a thread\n"
          "rank 1: ncclCommDestroy after 1 collectives, but rank 0 has issued 2\n");
    CHECK(nccl.async_error(clique.comms[0]) == ncclInvalidUsage);
  }
}

TEST_CASE("fake nccl: wrong arguments of init are refused in words") {
  const Nccl nccl;
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = nccl.unique_id();
  ncclConfig_t how = config(false);
  std::string text;
  const auto refused = [&](ncclResult_t result) {
    CHECK(result == ncclInvalidArgument);
    CHECK(comm == nullptr);
  };
  SUBCASE("a config that was not initialised") {
    ncclConfig_t bare;
    std::memset(&bare, 0, sizeof(bare));
    refused(nccl.init_config(&comm, 2, id, 1, &bare));
    text = "init of rank 1: its config was not made by NCCL_CONFIG_INITIALIZER of 22809\n";
  }
  SUBCASE("a config of another version") {
    how.version = NCCL_VERSION(2, 27, 3);
    refused(nccl.init_config(&comm, 2, id, 1, &how));
    text = "init of rank 1: its config was not made by NCCL_CONFIG_INITIALIZER of 22809\n";
  }
  SUBCASE("neither blocking nor not") {
    how.blocking = 2;
    refused(nccl.init_config(&comm, 2, id, 1, &how));
    text = "init of rank 1: config.blocking is 2, not 0 or 1\n";
  }
  SUBCASE("no such rank") {
    refused(nccl.init_config(&comm, 2, id, 2, &how));
    text = "init of rank 2 of 2\n";
  }
  SUBCASE("an id that was cut off on its way") {
    ncclUniqueId cut = id;
    std::memset(cut.internal + 64, 0, 64);
    refused(nccl.init_config(&comm, 2, cut, 0, &how));
    text = "init of rank 0: its unique id is not one of ncclGetUniqueId, or has changed on the way\n";
  }
  SUBCASE("another number of ranks") {
    ncclComm_t first = nullptr;
    CHECK(nccl.init_config(&first, 2, id, 0, &how) == ncclInProgress);
    refused(nccl.init_config(&comm, 3, id, 1, &how));
    text = "init of rank 1 of 3: the unique id is that of 2 ranks\n";
  }
  SUBCASE("an id that is used again") {
    ncclComm_t first = nullptr;
    CHECK(nccl.init_config(&first, 2, id, 0, &how) == ncclInProgress);
    CHECK(nccl.init_config(&comm, 2, id, 0, &how) == ncclInvalidUsage);
    text = "init of rank 0: it has come before with this unique id\n";
  }
  SUBCASE("two ranks on a device") {
    nccl.set_device(3);
    ncclComm_t first = nullptr;
    nccl.group_start();
    CHECK(nccl.init_config(&first, 2, id, 0, &how) == ncclSuccess);
    CHECK(nccl.init_config(&comm, 2, id, 1, &how) == ncclSuccess);
    CHECK(nccl.group_end() == ncclInProgress);
    CHECK(nccl.async_error(first) == ncclInvalidUsage);
    CHECK(nccl.async_error(comm) == ncclInvalidUsage);
    text = "rank 1: device 3 is also that of rank 0\n";
  }
  CHECK(nccl.violations() == text);
}

TEST_CASE("fake nccl: wrong arguments of collectives are refused in words") {
  const Nccl nccl;
  Clique clique(nccl, 2), blocking(nccl, 1, true);
  REQUIRE(clique.ready());
  float* const data = clique.values[0].data();
  const ncclComm_t comm = clique.comms[0];
  std::string text;
  nccl.group_start();
  SUBCASE("null buffer") {
    CHECK(nccl.all_reduce(nullptr, data, 4, ncclFloat32, ncclSum, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce #0 with a null buffer\n";
  }
  SUBCASE("overlap in part") {
    CHECK(nccl.all_reduce(data, data + 1, 3, ncclFloat32, ncclSum, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce #0: sendbuff and recvbuff overlap in part\n";
  }
  SUBCASE("avg") {
    CHECK(nccl.all_reduce(data, data, 4, ncclFloat32, ncclAvg, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce with op 4, which the fake lacks\n";
  }
  SUBCASE("float16") {
    CHECK(nccl.all_reduce(data, data, 4, ncclFloat16, ncclSum, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce of float16, which the fake lacks\n";
  }
  SUBCASE("no such datatype") {
    CHECK(nccl.all_reduce(data, data, 4, ncclNumTypes, ncclSum, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce of datatype 12\n";
  }
  SUBCASE("no such root") {
    CHECK(nccl.broadcast(data, data, 4, ncclFloat32, 2, comm, stream(0)) == ncclInvalidArgument);
    text = "rank 0: ncclBroadcast from root 2 of 2 ranks\n";
  }
  SUBCASE("blocking and non-blocking in one group") {
    CHECK(clique.all_reduce(0) == ncclSuccess);
    CHECK(blocking.all_reduce(0) == ncclInvalidArgument);
    text = "rank 0 of clique 2: blocking and non-blocking communicators in one group\n";
  }
  // The group is as bad as the call, and so is the communicator.
  CHECK(nccl.group_end() == ncclInvalidArgument);
  CHECK(nccl.async_error(comm) == ncclInvalidArgument);
  CHECK(nccl.violations() == text);
}

TEST_CASE("fake nccl: a stream of another device is a CUDA error") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  nccl.group_start();
  for (int rank = 0; rank < 2; ++rank) {
    float* const data = clique.values[rank].data();
    nccl.all_reduce(data, data, 4, ncclFloat32, ncclSum, clique.comms[rank], stream(0));
  }
  CHECK(nccl.group_end() == ncclInProgress);
  CHECK(eventually([&] { return nccl.async_error(clique.comms[1]) == ncclUnhandledCudaError; }));
  CHECK(nccl.violations() == "rank 1: the stream of ncclAllReduce #0 is that of rank 0, on another device\n");
}

TEST_CASE("fake nccl: the default stream is another on each device") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  nccl.group_start();
  for (int rank = 0; rank < 2; ++rank) {
    float* const data = clique.values[rank].data();
    nccl.all_reduce(data, data, 4, ncclFloat32, ncclSum, clique.comms[rank], nullptr);
  }
  CHECK(nccl.group_end() == ncclInProgress);
  CHECK(clique.ready());
  CHECK(eventually([&] { return nccl.stream_done(nullptr); }));
  CHECK(clique.values[1][3] == 3);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: a handle that is used after its end is refused, and nothing crashes") {
  const Nccl nccl;
  Clique clique(nccl, 2), aborted(nccl, 2);
  REQUIRE(clique.ready());
  const ncclComm_t comm = clique.comms[1];
  aborted.abort();
  for (const ncclComm_t each : clique.comms) nccl.finalize(each);
  REQUIRE(clique.ready());
  for (const ncclComm_t each : clique.comms) CHECK(nccl.destroy(each) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  int count = 0;
  CHECK(clique.all_reduce(1) == ncclInvalidArgument);
  CHECK(nccl.finalize(comm) == ncclInvalidArgument);
  CHECK(nccl.destroy(comm) == ncclInvalidArgument);
  CHECK(nccl.abort(comm) == ncclInvalidArgument);
  CHECK(nccl.get_async_error(comm, &state) == ncclInvalidArgument);
  CHECK(nccl.count(aborted.comms[0], &count) == ncclInvalidArgument);
  CHECK(nccl.count(nullptr, &count) == ncclInvalidArgument);
  CHECK(nccl.count(reinterpret_cast<ncclComm_t>(~std::uintptr_t(0)), &count) == ncclInvalidArgument);
  for (const auto& call : {nccl.finalize, nccl.destroy, nccl.abort}) CHECK(call(nullptr) == ncclSuccess);
  CHECK(nccl.violations() ==
        "rank 1: ncclAllReduce after ncclCommDestroy\n"
        "rank 1: ncclCommFinalize after ncclCommDestroy\n"
        "rank 1: ncclCommDestroy after ncclCommDestroy\n"
        "rank 1: ncclCommAbort after ncclCommDestroy\n"
        "rank 1: ncclCommGetAsyncError after ncclCommDestroy\n"
        "rank 0 of clique 2: ncclCommCount after ncclCommAbort\n"
        "thread 1: ncclCommCount of a null communicator\n"
        "thread 1: ncclCommCount of what is no communicator\n");
  nccl.reset();
  CHECK(nccl.violations() == "");
  CHECK(nccl.abort(comm) == ncclInvalidArgument);
  CHECK(nccl.violations() == "thread 1: ncclCommAbort of a communicator of before the last reset\n");
}

TEST_CASE("fake nccl: the end of a communicator has its order") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  const ncclComm_t comm = clique.comms[0];
  std::string text;
  SUBCASE("finalize is asynchronous, and destroy comes when its end was told") {
    CHECK(nccl.inject(kFakeNcclHang, 0, kFakeNcclAtFinalize, 0));
    CHECK(nccl.inject(kFakeNcclLate, 1, kFakeNcclAtFinalize, 5));
    for (const ncclComm_t each : clique.comms) CHECK(nccl.finalize(each) == ncclInProgress);
    CHECK(nccl.destroy(comm) == ncclInvalidArgument);
    CHECK(eventually([&] { return nccl.async_error(clique.comms[1]) == ncclSuccess; }));
    CHECK(nccl.destroy(clique.comms[1]) == ncclSuccess);
    CHECK(nccl.abort(comm) == ncclSuccess);
    text = "rank 0: ncclCommDestroy before ncclCommGetAsyncError has told the end of ncclCommFinalize\n";
  }
  SUBCASE("finalize waits for what was launched") {
    CHECK(nccl.inject(kFakeNcclLate, 1, 0, 20));
    CHECK(clique.step() == ncclInProgress);
    REQUIRE(clique.ready());
    nccl.group_start();
    for (const ncclComm_t each : clique.comms) CHECK(nccl.finalize(each) == ncclSuccess);
    CHECK(nccl.group_end() == ncclInProgress);
    REQUIRE(clique.ready());
    CHECK(clique.done());
    CHECK(clique.values[0][0] == 3);
  }
  SUBCASE("only once") {
    CHECK(nccl.finalize(comm) == ncclInProgress);
    CHECK(eventually([&] { return nccl.async_error(comm) == ncclSuccess; }));
    CHECK(nccl.finalize(comm) == ncclInvalidArgument);
    text = "rank 0: ncclCommFinalize twice\n";
  }
  SUBCASE("and nothing after it") {
    CHECK(nccl.finalize(comm) == ncclInProgress);
    CHECK(eventually([&] { return nccl.async_error(comm) == ncclSuccess; }));
    CHECK(clique.all_reduce(0) == ncclInvalidArgument);
    text = "rank 0: ncclAllReduce after ncclCommFinalize\n";
  }
  SUBCASE("destroy alone waits for what was launched, but not for ever") {
    CHECK(nccl.inject(kFakeNcclLate, 0, 0, 20));
    CHECK(nccl.inject(kFakeNcclHang, 0, 1, 0));
    for (int i = 0; i < 2; ++i) {
      CHECK(clique.step() == ncclInProgress);
      REQUIRE(clique.ready());
    }
    CHECK(eventually([&] { return nccl.live().starts_with("rank 0: ready, 1 coll"); }));
    nccl.set_patience(30);
    CHECK(nccl.destroy(comm) == ncclSuccess);
    CHECK(clique.done(0));
    CHECK_FALSE(clique.done(1));
    CHECK(clique.values[0][0] == 3);
    text = "rank 0: ncclCommDestroy without ncclCommFinalize and with 1 collectives to complete\n";
  }
  SUBCASE("what is in error is aborted") {
    CHECK(nccl.inject(kFakeNcclError, 0, 0, ncclSystemError));
    CHECK(clique.step() == ncclInProgress);
    CHECK(eventually([&] { return nccl.async_error(comm) == ncclSystemError; }));
    CHECK(nccl.destroy(comm) == ncclSystemError);
    text = "rank 0: ncclCommDestroy in error (ncclSystemError); only ncclCommAbort frees it\n";
    CHECK(nccl.live().starts_with("rank 0: ncclSystemError, 1 collectives to complete\n"));
    clique.abort();
  }
  CHECK(nccl.violations() == text);
}

TEST_CASE("fake nccl: an abort while another thread is inside or holds a group is noted") {
  const Nccl nccl;
  SUBCASE("inside") {
    ncclComm_t comm = nullptr;
    std::atomic<bool> ended = false;
    const ncclUniqueId id = nccl.unique_id();
    nccl.user_rank(nullptr, nullptr);  // this is thread 1
    std::thread waiting([&] {
      CHECK(nccl.init_rank(&comm, 2, id, 0) == ncclInternalError);
      ended = true;
    });
    // The handle is known to the thread that waits; here it is the first after those of before.
    CHECK(eventually([&] { return nccl.live() != ""; }));
    CHECK_FALSE(ended);
    CHECK(nccl.abort(comm) == ncclSuccess);
    waiting.join();
    CHECK(nccl.violations().ends_with("rank 0: ncclCommAbort by thread 1 while thread 2 is inside ncclCommInitRank\n"));
  }
  SUBCASE("an open group") {
    Clique clique(nccl, 2);
    REQUIRE(clique.ready());
    nccl.group_start();
    CHECK(clique.all_reduce(0) == ncclSuccess);
    CHECK(clique.all_reduce(1) == ncclSuccess);
    std::thread([&] { CHECK(nccl.abort(clique.comms[0]) == ncclSuccess); }).join();
    CHECK(nccl.group_end() == ncclInvalidArgument);
    CHECK(nccl.async_error(clique.comms[1]) == ncclInvalidArgument);
    CHECK(nccl.violations() == "rank 0: ncclCommAbort by thread 2 with a collective in an open group of thread 1\n");
  }
}

TEST_CASE("fake nccl: an error strikes one rank at its collective, and the others wait until they are aborted") {
  const Nccl nccl;
  Clique clique(nccl, 3);
  REQUIRE(clique.ready());
  CHECK(nccl.inject(kFakeNcclError, 1, 1, ncclRemoteError));
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.finished());
  CHECK(clique.step() == ncclInProgress);
  CHECK(eventually([&] { return nccl.async_error(clique.comms[1]) == ncclRemoteError; }));
  pause_ms(10);
  CHECK(nccl.async_error(clique.comms[0]) == ncclSuccess);
  for (int rank = 0; rank < 3; ++rank) CHECK_FALSE(clique.done(rank));
  CHECK(clique.values[0][0] == 6);
  CHECK(nccl.last_error(nullptr) == std::string("rank 1: ncclRemoteError, as the test has planned"));
  clique.abort();
  CHECK(clique.done());
  CHECK(nccl.live() == "");
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: a hang lasts until all are aborted") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(nccl.inject(kFakeNcclHang, 0, 0, 0));
  for (int i = 0; i < 2; ++i) {
    CHECK(clique.step() == ncclInProgress);
    REQUIRE(clique.ready());
  }
  pause_ms(10);
  CHECK_FALSE(clique.done(0));
  CHECK_FALSE(clique.done(1));
  CHECK(nccl.live() ==
        "rank 0: ready, 2 collectives to complete\n"
        "rank 1: ready, 2 collectives to complete\n");
  CHECK(nccl.abort(clique.comms[0]) == ncclSuccess);
  CHECK(clique.done(0));
  pause_ms(10);
  CHECK_FALSE(clique.done(1));
  CHECK(nccl.abort(clique.comms[1]) == ncclSuccess);
  CHECK(clique.done(1));
  CHECK(clique.values[1] == std::vector<float>(4, 2));
  CHECK(nccl.live() == "");
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: what an aborted rank has sent does not complete the others") {
  const Nccl nccl;
  Clique clique(nccl, 2, true);
  CHECK(clique.all_reduce(0) == ncclSuccess);
  pause_ms(10);
  CHECK(nccl.abort(clique.comms[0]) == ncclSuccess);
  std::thread([&] { CHECK(clique.all_reduce(1) == ncclSuccess); }).join();
  pause_ms(10);
  CHECK_FALSE(clique.done(1));
  CHECK(nccl.abort(clique.comms[1]) == ncclSuccess);
  CHECK(clique.values[1][0] == 2);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: an error at launch comes from the group's end or after it, for the whole group") {
  const Nccl nccl;
  for (const bool blocking : {false, true}) {
    for (const FakeNcclFault fault : {kFakeNcclLaunchError, kFakeNcclLaterLaunchError}) {
      CAPTURE(blocking);
      CAPTURE(fault);
      Clique clique(nccl, 2, blocking);
      REQUIRE(clique.ready());
      CHECK(nccl.inject(fault, 1, 0, ncclUnhandledCudaError));
      const bool later = !blocking && fault == kFakeNcclLaterLaunchError;
      CHECK(clique.step() == (later ? ncclInProgress : ncclUnhandledCudaError));
      CHECK(eventually([&] { return clique.all_are(ncclUnhandledCudaError); }));
      CHECK(clique.done());  // nothing was launched
      CHECK(clique.values[0][0] == 1);
      CHECK(clique.all_reduce(0) == ncclUnhandledCudaError);
      clique.abort();
    }
  }
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: init that fails or hangs on one rank leaves the others in progress") {
  const Nccl nccl;
  for (const FakeNcclFault fault : {kFakeNcclError, kFakeNcclHang}) {
    CHECK(nccl.inject(fault, 1, kFakeNcclAtInit, ncclSystemError));
    Clique clique(nccl, 3);
    CHECK(clique.end == ncclInProgress);
    const ncclResult_t state = fault == kFakeNcclError ? ncclSystemError : ncclInProgress;
    CHECK(eventually([&] { return nccl.async_error(clique.comms[1]) == state; }));
    pause_ms(10);
    CHECK(nccl.async_error(clique.comms[0]) == ncclInProgress);
    CHECK(nccl.async_error(clique.comms[1]) == state);
    CHECK(nccl.async_error(clique.comms[2]) == ncclInProgress);
    clique.abort();
  }
  CHECK(nccl.violations() == "");
  CHECK(nccl.inject(kFakeNcclError, 0, kFakeNcclAtInit, ncclInternalError));
  Clique blocking(nccl, 2, true);
  CHECK(blocking.end == ncclInternalError);
  blocking.abort();
  CHECK(nccl.live() == "");
}

TEST_CASE("fake nccl: finalize can fail or hang, and an abort can be late") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(nccl.inject(kFakeNcclError, 0, kFakeNcclAtFinalize, ncclRemoteError));
  CHECK(nccl.inject(kFakeNcclHang, 1, kFakeNcclAtFinalize, 0));
  for (const ncclComm_t comm : clique.comms) CHECK(nccl.finalize(comm) == ncclInProgress);
  CHECK(eventually([&] { return nccl.async_error(clique.comms[0]) == ncclRemoteError; }));
  pause_ms(10);
  CHECK(nccl.async_error(clique.comms[1]) == ncclInProgress);
  CHECK(nccl.inject(kFakeNcclLate, 1, kFakeNcclAtAbort, 30));
  std::thread aborting([&] { CHECK(nccl.abort(clique.comms[1]) == ncclSuccess); });
  CHECK(nccl.abort(clique.comms[0]) == ncclSuccess);
  aborting.join();
  CHECK(nccl.live() == "");
  CHECK(nccl.violations() == "");

  nccl.set_patience(30);
  Clique blocking(nccl, 1, true);
  CHECK(nccl.inject(kFakeNcclHang, 0, kFakeNcclAtFinalize, 0));
  CHECK(nccl.finalize(blocking.comms[0]) == ncclInternalError);
  CHECK(nccl.violations() ==
        "rank 0 of clique 2: ncclCommFinalize by thread 1 has waited 30 ms for 0 collectives to complete\n");
}

TEST_CASE("fake nccl: a corrupted result differs in one bit on one rank") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(nccl.inject(kFakeNcclCorrupt, 1, 0, 31));
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.finished());
  CHECK(clique.values[0] == std::vector<float>{3, 3, 3, 3});
  CHECK(clique.values[1] == std::vector<float>{-3, 3, 3, 3});
  clique.close();
}

TEST_CASE("fake nccl: a fault that cannot be is refused") {
  const Nccl nccl;
  CHECK_FALSE(nccl.inject(kFakeNcclError, 0, 0, ncclSuccess));
  CHECK_FALSE(nccl.inject(kFakeNcclError, 0, 0, ncclInProgress));
  CHECK_FALSE(nccl.inject(kFakeNcclHang, 0, kFakeNcclAtAbort, 0));
  CHECK_FALSE(nccl.inject(kFakeNcclLate, 0, 0, -1));
  CHECK_FALSE(nccl.inject(kFakeNcclLate, 0, -4, 1));
  CHECK_FALSE(nccl.inject(kFakeNcclLaunchError, 0, kFakeNcclAtInit, ncclSystemError));
  CHECK_FALSE(nccl.inject(kFakeNcclCorrupt, 0, kFakeNcclAtFinalize, 0));
  CHECK_FALSE(nccl.inject(kFakeNcclHang, -1, 0, 0));
  CHECK_FALSE(nccl.inject(static_cast<FakeNcclFault>(7), 0, 0, 0));
}

TEST_CASE("fake nccl: after an abort at a random moment nothing touches the buffers") {
  const Nccl nccl;
  CAPTURE(kSeed);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    nccl.set_delay(kSeed + round, 400);
    auto clique = std::make_unique<Clique>(nccl, 3);
    REQUIRE(clique->ready());
    for (int i = 0; i < 3; ++i) {
      CHECK(clique->step() == ncclInProgress);
      if (i < 2) REQUIRE(clique->ready());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 131 % 1500));
    const bool in_threads = round % 2 == 0;
    std::vector<std::thread> all;
    for (const ncclComm_t comm : clique->comms) {
      if (in_threads) {
        all.emplace_back([&nccl, comm] { CHECK(nccl.abort(comm) == ncclSuccess); });
      } else {
        CHECK(nccl.abort(comm) == ncclSuccess);
      }
    }
    for (std::thread& each : all) each.join();
    const std::vector<std::vector<float>> left = clique->values;
    clique->values.clear();  // a sanitizer would see a late write
    for (std::vector<float>& values : clique->values) values.shrink_to_fit();
    pause_ms(1);
    CHECK(nccl.live() == "");
  }
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: many steps of many ranks under random delays") {
  const Nccl nccl;
  CAPTURE(kSeed);
  nccl.set_delay(kSeed, 50);
  Clique clique(nccl, 8);
  REQUIRE(clique.ready());
  for (int i = 0; i < 100; ++i) {
    for (int rank = 0; rank < 8; ++rank) clique.values[rank].assign(4, static_cast<float>(rank + i));
    CHECK(clique.step() == ncclInProgress);
    REQUIRE(clique.finished());
    for (int rank = 0; rank < 8; ++rank) CHECK(clique.values[rank][3] == 28 + 8 * i);
  }
  CHECK(nccl.violations() == "");
  clique.close();
}

TEST_CASE("fake nccl: calls are logged, the last 256, and violations, the first 256") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.finished());
  CHECK(nccl.finalize(clique.comms[0]) == ncclInProgress);
  CHECK(nccl.abort(clique.comms[1]) == ncclSuccess);
  CHECK(nccl.events() ==
        "thread 1, group 1: ncclGroupStart -> ncclSuccess\n"
        "thread 1, group 1, rank 0: ncclCommInitRankConfig of 2 -> ncclSuccess\n"
        "thread 1, group 1, rank 1: ncclCommInitRankConfig of 2 -> ncclSuccess\n"
        "thread 1, group 1: ncclGroupEnd -> ncclInProgress\n"
        "thread 1, group 2: ncclGroupStart -> ncclSuccess\n"
        "thread 1, group 2, rank 0: #0 ncclAllReduce(4 float32 sum) -> ncclSuccess\n"
        "thread 1, group 2, rank 1: #0 ncclAllReduce(4 float32 sum) -> ncclSuccess\n"
        "thread 1, group 2: ncclGroupEnd -> ncclInProgress\n"
        "thread 1, rank 0: ncclCommFinalize -> ncclInProgress\n"
        "thread 1, rank 1: ncclCommAbort -> ncclSuccess\n");
  for (int i = 0; i < 300; ++i) nccl.group_end();
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  CHECK(lines(nccl.events()) == 256);
  CHECK(lines(nccl.violations()) == 256);
}

TEST_CASE("fake nccl: a reset joins the background thread, whatever was going on") {
  std::ptrdiff_t before = 0;  // once those that have just been joined are gone from there
  CHECK(eventually([&] {
    before = threads();
    pause_ms(5);
    return threads() == before;
  }));
  const Nccl nccl;
  CHECK(nccl.inject(kFakeNcclHang, 0, 0, 0));
  Clique clique(nccl, 2), unready(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(clique.step() == ncclInProgress);
  CHECK(threads() == before + 1);
  nccl.reset();
  CHECK(eventually([&] { return threads() == before; }));
  CHECK(nccl.live() == "");
  CHECK(nccl.stream_done(stream(0)));
}
