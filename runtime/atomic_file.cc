#include "runtime/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "graph/error.h"
#include "runtime/output_file.h"

namespace lanewise {
namespace {

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  const int reason = errno;
  throw Error(Exit::kCheckpoint, fmt::format("cannot {} {}: {}", doing, path, std::generic_category().message(reason)));
}

}  // namespace

void write_atomically(const std::string& path, std::span<const std::string_view> pieces) {
  write_atomically(path, [&](OutputFile& file) {
    for (const std::string_view piece : pieces) file.write(piece);
  });
}

void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    OutputFile file(temporary);
    write(file);
    file.sync();
    file.close();
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  sync_folder(parent.empty() ? "." : parent.string());
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", folder);
  const bool synced = ::fsync(fd) == 0;
  const int reason = errno;
  ::close(fd);
  errno = reason;
  if (!synced) fail("write", folder);
}

}  // namespace lanewise
