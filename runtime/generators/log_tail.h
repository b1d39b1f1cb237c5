// A LogTail takes what a program writes, piece by piece: keeps the end of it, and tells its lines.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace lanewise {

class LogTail {
 public:
  // `tell` gets each line as it ends, one of more than kLine bytes cut to that.
  explicit LogTail(std::function<void(std::string_view line)> tell) : tell_(std::move(tell)) {}

  void take(std::string_view bytes);
  // What is left is a line, too.
  void finish();
  // The last lines, each indented by two, at most kLines; "" when nothing was written.
  std::string end() const;

  static constexpr std::size_t kLines = 20, kLine = 1000;

 private:
  void end_line();

  const std::function<void(std::string_view)> tell_;
  std::string line_;   // begun, at most kLine bytes of it
  bool long_ = false;  // it has more
  std::deque<std::string> lines_;
};

}  // namespace lanewise
