#include "runtime/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "graph/error.h"
#include "graph/sha256.h"

namespace lanewise {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;

[[noreturn]] void fail(const char* doing, const std::string& path) {
  const int reason = errno;
  throw Error(Exit::kCheckpoint, fmt::format("cannot {} {}: {}", doing, path, std::generic_category().message(reason)));
}

}  // namespace

// Without O_NONBLOCK a named pipe would be waited for.
InputFile::InputFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_ < 0) fail("open", path_);
  struct stat status {};
  const bool known = ::fstat(file_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const int reason = errno;
    ::close(file_);
    errno = reason;
    if (!known) fail("read", path_);
    throw Error(Exit::kCheckpoint, fmt::format("{} is not a regular file", path_));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(file_); }

void InputFile::read(std::uint64_t offset, void* into, std::size_t bytes) const {
  char* to = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t n = ::pread(file_, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path_);
    if (n == 0) throw Error(Exit::kCheckpoint, fmt::format("{} became shorter while it was read", path_));
    to += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

std::string InputFile::text(std::uint64_t most) const {
  if (size_ > most) {
    throw Error(Exit::kCheckpoint, fmt::format("{} has {} bytes, more than the {} it may have", path_, size_, most));
  }
  std::string all(size_, '\0');
  read(0, all.data(), all.size());
  return all;
}

std::string InputFile::sha256() const {
  Sha256 sum;
  std::string block(std::min<std::uint64_t>(kBlock, size_), '\0');
  for (std::uint64_t offset = 0; offset < size_; offset += block.size()) {
    block.resize(std::min<std::uint64_t>(block.size(), size_ - offset));
    read(offset, block.data(), block.size());
    sum.add(block);
  }
  return sum.hex();
}

}  // namespace lanewise
