// A file being written: every write is checked, and an error names the file and the system's reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lanewise {

// Buffered; used by one thread at a time. Throws Error(kCheckpoint) when the file cannot be made or written.
class OutputFile {
 public:
  // `keep`: goes on behind the first so many bytes of the file that is there, which must have them, and cuts the rest;
  // else a new file. `later`: nothing is touched before open().
  explicit OutputFile(const std::string& path, std::optional<std::uint64_t> keep = std::nullopt, bool later = false);
  void open();    // before all that follows but empty() and bytes(); does nothing the second time
  ~OutputFile();  // closes without a word: call close() where success matters
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  bool empty() const { return bytes_ == 0; }      // nothing was written yet
  std::uint64_t bytes() const { return bytes_; }  // kept and written, what is buffered included
  // Takes back what was written behind the first `bytes`. Requires: there are as many.
  void cut(std::uint64_t bytes);
  // Hands what is buffered to the system.
  void flush();
  // Returns when all is on the disk. Includes flush().
  void sync();
  void close();

 private:
  void write_through(std::string_view text);

  const std::string path_;
  const std::optional<std::uint64_t> keep_;
  std::string buffer_;
  int file_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace lanewise
