// Folders and files for tests.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lanewise {

// A folder of its own under the system's temporary one, or another, gone at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "lanewise-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

// Runs `work` in a process of its own; that process. It ends with 0 when `work` returns, with 1 when it throws.
template <class Work>
pid_t start_process(Work&& work) {
  const pid_t process = ::fork();
  if (process < 0) throw std::runtime_error("cannot fork");
  if (process > 0) return process;
  try {
    work();
    ::_exit(0);
  } catch (...) {
    ::_exit(1);
  }
}

// How it ended: its exit code, or 128 + the signal that killed it.
inline int end_of(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) != process) throw std::runtime_error("cannot wait");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lanewise
