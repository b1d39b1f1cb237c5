// What the fake NCCL says of itself, what it writes down, and its reset.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/check.h"

using namespace lanewise;

namespace {

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
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

TEST_CASE("fake nccl: collectives of a stream begin when it is opened for them") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  nccl.open_stream(stream(1), 1);
  for (int i = 0; i < 2; ++i) {
    CHECK(clique.step() == ncclInProgress);
    REQUIRE(clique.ready());
  }
  CHECK(eventually([&] { return nccl.stream_completed(stream(0)) == 1 && nccl.stream_completed(stream(1)) == 1; }));
  pause_ms(20);
  for (const int rank : {0, 1}) {
    CHECK(nccl.stream_launched(stream(rank)) == 2);
    CHECK(nccl.stream_completed(stream(rank)) == 1);
  }
  nccl.open_stream(stream(1), 2);
  CHECK(clique.finished());
  CHECK(nccl.stream_completed(stream(0)) == 2);
  nccl.open_stream(stream(0), 2);
  CHECK(clique.step() == ncclInProgress);
  REQUIRE(clique.ready());
  clique.abort();
  CHECK(nccl.stream_completed(stream(0)) == 3);
  CHECK(nccl.violations() == "");
}
