// A file being read: every read is checked, and an error names the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lanewise {

// Used by any threads. Throws Error(kCheckpoint) when the file is not there, is no regular file or cannot be read.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }  // when it was opened
  // Reads `bytes` bytes from `offset` on; fewer in the file are an error.
  void read(std::uint64_t offset, void* into, std::size_t bytes) const;
  // The whole file, which may be at most `most` bytes.
  std::string text(std::uint64_t most) const;
  // The SHA-256 of the whole file.
  std::string sha256() const;

 private:
  const std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace lanewise
