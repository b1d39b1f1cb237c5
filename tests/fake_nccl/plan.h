// What a test has planned: faults, each of which strikes once, and delays by chance.
//
// Part of the Library, whose mutex guards it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/fake_nccl/fake_nccl.h"

namespace fake_nccl {

struct Fault {
  FakeNcclFault kind;
  int rank;
  std::int64_t at;
  std::int64_t value;
};

// What the background thread waits for.
enum class Delay { kLaunch = 1, kInit, kFinalize, kReady, kStart, kDelivery };

class Plan {
 public:
  // False: there is no such fault.
  bool add(const Fault& fault);

  // The value of such a fault, which is thereby gone; none when none is planned.
  std::optional<std::int64_t> take(FakeNcclFault kind, int rank, std::int64_t at);

  void set_delay(std::uint64_t seed, int max_us);

  // Depends on (seed, rank, at, what for) alone.
  std::chrono::microseconds delay(int rank, std::int64_t at, Delay what_for) const;

 private:
  std::vector<Fault> faults_;
  std::uint64_t seed_ = 0;
  std::uint64_t max_us_ = 0;
};

}  // namespace fake_nccl
