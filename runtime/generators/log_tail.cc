#include "runtime/generators/log_tail.h"

#include <algorithm>

#include "graph/text.h"

namespace lanewise {

void LogTail::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t stop = bytes.find('\n');
    const std::string_view part = bytes.substr(0, stop);
    const std::size_t room = kLine - line_.size();
    line_ += part.substr(0, room);
    long_ = long_ || part.size() > room;
    if (stop == std::string_view::npos) return;
    end_line();
    bytes.remove_prefix(stop + 1);
  }
}

void LogTail::finish() {
  if (!line_.empty()) end_line();
}

void LogTail::end_line() {
  std::string line = escaped(line_);
  if (long_) line += " …";
  tell_(line);
  lines_.push_back(std::move(line));
  if (lines_.size() > kLines) lines_.pop_front();
  line_.clear();
  long_ = false;
}

std::string LogTail::end() const {
  std::string text;
  for (const std::string& line : lines_) text += (text.empty() ? "  " : "\n  ") + line;
  return text;
}

}  // namespace lanewise
