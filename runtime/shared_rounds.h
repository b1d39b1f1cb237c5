// SharedRounds is memory that the processes of one host share, for what each gives all others every round.
//
//   header   whether one has closed it, and how many rounds each process has posted
//   parts    two a process, for rounds of even and of odd number: while some still read a round, others write the next
//
// The memory has no name and is gone with the processes, however they end. Each holds a lock on its byte of it, which
// is how the others know that it is alive.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/world.h"

namespace lanewise {

// Processes do not come to what all do together.
struct Missing : std::runtime_error {
  Missing(const char* what, std::vector<int> missing) : std::runtime_error(what), ranks(std::move(missing)) {}
  std::vector<int> ranks;
};

// One thread at a time.
class SharedRounds {
 public:
  // By all processes together. `bytes`: what each gives in a round. Null in all of them when one cannot share memory
  // with the first, or when it would take more than half of the host's.
  static std::unique_ptr<SharedRounds> make(World& world, std::size_t bytes, std::chrono::milliseconds timeout);
  ~SharedRounds();
  SharedRounds(const SharedRounds&) = delete;
  SharedRounds& operator=(const SharedRounds&) = delete;

  // What this process gives in the round that begins: to be filled before exchange(). On a 64-byte boundary.
  void* own();
  // Waits for what the others give. Throws std::runtime_error when one of them has closed, and Missing when one is gone
  // or later than the timeout.
  void exchange();
  // What a process gave in the last exchange(); until the next.
  const void* part(int rank) const;

  // The others, which wait or are about to, throw.
  void close();

 private:
  struct Header;
  class Memory;
  SharedRounds(std::unique_ptr<Memory> memory, std::size_t bytes, int rank, int processes,
               std::chrono::milliseconds timeout);
  std::vector<int> late() const;  // who has not posted this round
  bool all_posted() const;
  void* at(int rank, std::uint64_t round) const;

  const std::unique_ptr<Memory> memory_;
  const std::size_t bytes_;
  const int rank_, processes_;
  const std::chrono::milliseconds timeout_;
  Header& header_;
  std::uint64_t round_ = 0;  // posted
};

}  // namespace lanewise
