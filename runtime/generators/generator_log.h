// The GeneratorLog is the file that all programs' output of a run goes to, a line of it behind its stream's name.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

namespace lanewise {

class GeneratorLog {
 public:
  // Appends to `path`, made at the first line; "" for none. `say`: to the user, once, when it cannot be written.
  GeneratorLog(std::string path, std::function<void(const std::string&)> say)
      : path_(std::move(path)), say_(std::move(say)) {}

  // By one thread at a time. Keeps no more than kMost bytes.
  void write(const std::string& stream, std::string_view line);

  static constexpr std::uint64_t kMost = 16 << 20;

 private:
  const std::string path_;
  const std::function<void(const std::string&)> say_;
  std::ofstream file_;
  std::uint64_t bytes_ = 0;
  bool over_ = false;
};

}  // namespace lanewise
