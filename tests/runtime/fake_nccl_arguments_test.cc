// Arguments that the fake NCCL refuses.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <cstring>
#include <string>

#include "tests/check.h"

using namespace lanewise;

TEST_CASE("fake nccl: wrong arguments of init are refused in words") {
  const Nccl nccl;
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = nccl.unique_id();
  ncclConfig_t how = nccl_config(false);
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
  for (int rank = 0; rank < 2; ++rank) clique.all_reduce(rank, stream(0));
  CHECK(nccl.group_end() == ncclInProgress);
  CHECK(eventually([&] { return nccl.async_error(clique.comms[1]) == ncclUnhandledCudaError; }));
  CHECK(nccl.violations() == "rank 1: the stream of ncclAllReduce #0 is that of rank 0, on another device\n");
}
