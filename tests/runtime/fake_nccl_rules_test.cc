// The rules that the fake NCCL holds its callers to while they train: groups, threads, and ranks that agree.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <string>
#include <thread>

#include "tests/check.h"

using namespace lanewise;

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
    ncclConfig_t how = nccl_config(false);
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
