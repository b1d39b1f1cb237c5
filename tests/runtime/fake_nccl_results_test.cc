// What the fake NCCL computes, and when a result is there.
#include "tests/runtime/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/check.h"

using namespace lanewise;

namespace {

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

TEST_CASE("fake nccl: every rank gets the same bits, combined in rank order in the type's own precision") {
  const Nccl nccl;
  CAPTURE(kFakeNcclSeed);
  nccl.set_delay(kFakeNcclSeed, 300);
  check_type<float>(nccl, ncclFloat32, kFakeNcclSeed);
  check_type<double>(nccl, ncclFloat64, kFakeNcclSeed);
  check_type<std::int32_t>(nccl, ncclInt32, kFakeNcclSeed);
  check_type<std::int64_t>(nccl, ncclInt64, kFakeNcclSeed);
  check_type<std::uint8_t>(nccl, ncclUint8, kFakeNcclSeed);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: blocking communicators, a thread for each rank, sum many times in order") {
  const Nccl nccl;
  CAPTURE(kFakeNcclSeed);
  nccl.set_delay(kFakeNcclSeed, 200);
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
  CAPTURE(kFakeNcclSeed);
  nccl.set_delay(kFakeNcclSeed, 2000);
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

TEST_CASE("fake nccl: the default stream is another on each device") {
  const Nccl nccl;
  Clique clique(nccl, 2);
  REQUIRE(clique.ready());
  nccl.group_start();
  for (int rank = 0; rank < 2; ++rank) clique.all_reduce(rank, nullptr);
  CHECK(nccl.group_end() == ncclInProgress);
  CHECK(clique.ready());
  CHECK(eventually([&] { return nccl.stream_done(nullptr); }));
  CHECK(clique.values[1][3] == 3);
  CHECK(nccl.violations() == "");
}

TEST_CASE("fake nccl: many steps of many ranks under random delays") {
  const Nccl nccl;
  CAPTURE(kFakeNcclSeed);
  nccl.set_delay(kFakeNcclSeed, 50);
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
