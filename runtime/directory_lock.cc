#include "runtime/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "graph/error.h"

namespace lanewise {
namespace {

// The process that the file names, as " (process N)"; "" when it does not (yet).
std::string holder(int file) {
  char text[24];
  const ssize_t length = ::pread(file, text, sizeof text, 0);
  std::string digits(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  digits.resize(std::min(digits.find_first_not_of("0123456789"), digits.size()));
  return digits.empty() ? "" : fmt::format(" (process {})", digits);
}

}  // namespace

// The file stays when the lock goes: a name that comes and goes could be locked twice.
DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/.lock";
  const auto fail = [&](const char* doing) {
    const int reason = errno;
    if (file_ >= 0) ::close(file_);
    throw Error(Exit::kCheckpoint,
                fmt::format("cannot {} {}: {}", doing, path, std::generic_category().message(reason)));
  };
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail("create");
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail("lock");
    const std::string other = holder(file_);
    ::close(file_);
    throw Error(
        Exit::kCommandLine,
        fmt::format("{} is in use by another run{}; wait for it to end or name another directory", directory, other));
  }
  const std::string process = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, process.data(), process.size(), 0) < 0) fail("write");
}

DirectoryLock::~DirectoryLock() { ::close(file_); }

}  // namespace lanewise
