// A communicator of the fake NCCL from its init to its end.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"

using namespace lanewise;

TEST_CASE("fake nccl: a non-blocking communicator is in progress until all ranks have come") {
  const Nccl nccl;
  const ncclUniqueId id = nccl.unique_id();
  ncclConfig_t how = nccl_config(false);
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

TEST_CASE("fake nccl: after an abort at a random moment nothing touches the buffers") {
  const Nccl nccl;
  CAPTURE(kFakeNcclSeed);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    nccl.set_delay(kFakeNcclSeed + round, 400);
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
    clique->values.clear();  // a sanitizer would see a late write
    pause_ms(1);
    CHECK(nccl.live() == "");
  }
  CHECK(nccl.violations() == "");
}
