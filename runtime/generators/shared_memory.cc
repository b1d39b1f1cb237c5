#include "runtime/generators/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "graph/error.h"

namespace lanewise {

SharedMemory::SharedMemory(std::size_t bytes)
    : descriptor_(::memfd_create("lanewise", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  void* at = MAP_FAILED;
  if (descriptor_ && ::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  }
  if (at == MAP_FAILED) {
    throw Error(Exit::kGenerator, fmt::format("no {} bytes of memory to share with it: {}", bytes,
                                              std::system_category().message(errno)));
  }
  bytes_ = {static_cast<std::byte*>(at), bytes};
}

SharedMemory::~SharedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace lanewise
