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

OutputFile::OutputFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail("create", path_);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::write(std::string_view text) {
  if (text.empty()) return;
  empty_ = false;
  if (text.size() >= kBuffer) {
    flush();
    return write_through(text);
  }
  buffer_ += text;
  if (buffer_.size() >= kBuffer) flush();
}

void OutputFile::flush() {
  const std::string text = std::exchange(buffer_, {});  // after a failure, the file does not fail again for the same bytes
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
