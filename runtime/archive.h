// Files of code that a pipeline names: TorchScript archives. Here they are bytes; what they say is run elsewhere
// (runtime/script_module.h), and only by a run.
#pragma once

#include <map>
#include <string>

namespace lanewise {

// Throws Error(kData) where `path` is no regular file that can be opened, with the command that makes it where a Python
// program beside it seems to: NAME.py beside NAME.pt or NAME_loss.pt. Reads nothing.
void check_archive(const std::string& path);

// The bytes of archives, each read once, so that all lanes and evaluations of a run go by the same. By one thread at a
// time.
class Archives {
 public:
  // Throws Error(kData) where the file cannot be read, or its SHA-256 is another than `sha256`, 64 hexadecimal digits;
  // "": any will do.
  const std::string& read(const std::string& path, const std::string& sha256);

 private:
  struct File {
    std::string bytes;
    std::string sha256;  // once it was asked for
  };
  std::map<std::string, File> read_;  // by path
};

// Why `text` is no SHA-256; "": it is one, or empty.
std::string sha256_problem(const std::string& text);

}  // namespace lanewise
