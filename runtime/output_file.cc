#include "runtime/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "graph/error.h"

namespace lanewise {
namespace {

constexpr std::size_t kBuffer = 1 << 16;

[[noreturn]] void fail(const char* doing, const std::string& path) {
  const int reason = errno;
  throw Error(Exit::kCheckpoint, fmt::format("cannot {} {}: {}", doing, path, std::generic_category().message(reason)));
}

}  // namespace

OutputFile::OutputFile(const std::string& path, std::optional<std::uint64_t> keep, bool later)
    : path_(path), keep_(keep), bytes_(keep.value_or(0)) {
  if (!later) open();
}

void OutputFile::open() {
  if (file_ >= 0) return;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (keep_ ? 0 : O_TRUNC), 0666);
  if (file_ < 0) fail("create", path_);
  if (!keep_) return;
  const off_t end = ::lseek(file_, 0, SEEK_END);
  if (end < 0) fail("go on with", path_);
  if (static_cast<std::uint64_t>(end) < bytes_) {
    throw Error(
        Exit::kCheckpoint,
        fmt::format("{} has {} bytes, where the checkpoint knows of {}: it was changed since", path_, end, bytes_));
  }
  cut(bytes_);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::write(std::string_view text) {
  if (text.empty()) return;
  bytes_ += text.size();
  if (text.size() >= kBuffer) {
    flush();
    return write_through(text);
  }
  buffer_ += text;
  if (buffer_.size() >= kBuffer) flush();
}

void OutputFile::cut(std::uint64_t bytes) {
  flush();
  const auto at = static_cast<off_t>(bytes);
  if (::ftruncate(file_, at) != 0 || ::lseek(file_, at, SEEK_SET) != at) fail("cut", path_);
  bytes_ = bytes;
}

void OutputFile::flush() {
  const std::string text =
      std::exchange(buffer_, {});  // after a failure, the file does not fail again for the same bytes
  write_through(text);
}

void OutputFile::write_through(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OutputFile::sync() {
  flush();
  if (::fsync(file_) != 0) fail("write", path_);
}

void OutputFile::close() {
  flush();
  if (::close(std::exchange(file_, -1)) != 0) fail("write", path_);
}

}  // namespace lanewise
