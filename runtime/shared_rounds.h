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

#include "runtime/world.h"

namespace lanewise {

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
  // Waits for what the others give. Throws std::runtime_error when one of them has closed, is gone, or is later than
  // the timeout.
  void exchange();
  // What a process gave in the last exchange(); until the next.
  const void* part(int rank) const;

  // The others, which wait or are about to, throw.
  void close();

 private:
  struct Header;
  SharedRounds(int file, void* memory, std::size_t size, std::size_t bytes, int rank, int processes,
               std::chrono::milliseconds timeout);
  bool all_posted() const;
  void check_others() const;
  void* at(int rank, std::uint64_t round) const;

  const int file_;
  void* const memory_;
  const std::size_t size_, bytes_;
  const int rank_, processes_;
  const std::chrono::milliseconds timeout_;
  Header& header_;
  std::uint64_t round_ = 0;  // posted
};

}  // namespace lanewise
