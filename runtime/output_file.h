// A file being written: every write is checked, and an error names the file and the system's reason.
#pragma once

#include <string>
#include <string_view>

namespace lanewise {

// Buffered; used by one thread at a time. Throws Error(kCheckpoint) when the file cannot be made or written.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // closes without a word: call close() where success matters
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  bool empty() const { return empty_; }  // nothing was written yet
  // Hands what is buffered to the system.
  void flush();
  // Returns when all is on the disk. Includes flush().
  void sync();
  void close();

 private:
  void write_through(std::string_view text);

  const std::string path_;
  std::string buffer_;
  int file_ = -1;
  bool empty_ = true;
};

}  // namespace lanewise
