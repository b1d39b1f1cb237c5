// The faults that the fake NCCL plays, and what they do to other ranks.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"

using namespace lanewise;

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

TEST_CASE("fake nccl: an error that only the call tells changes nothing else") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  CHECK(nccl.inject(kFakeNcclCallError, 1, 0, ncclSystemError));
  CHECK(nccl.inject(kFakeNcclEndError, 1, 0, ncclInternalError));
  nccl.group_start();
  CHECK(clique.all_reduce(0) == ncclSuccess);
  CHECK(clique.all_reduce(1) == ncclSystemError);
  CHECK(nccl.group_end() == ncclInternalError);
  REQUIRE(clique.finished());
  CHECK(clique.values[1] == std::vector<float>(4, 3));
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.finished());
  clique.close();
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
  CHECK_FALSE(nccl.inject(static_cast<FakeNcclFault>(8), 0, 0, 0));
}
