// SharedMemory is a piece of memory that another process maps, too. Its size is fixed for all time, so that nobody can
// take it away from under the other.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/generators/descriptor.h"

namespace lanewise {

class SharedMemory {
 public:
  // Throws Error(kGenerator) when there is not enough memory.
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const { return descriptor_.get(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  Descriptor descriptor_;
  std::span<std::byte> bytes_;
};

}  // namespace lanewise
