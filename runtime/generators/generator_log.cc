#include "runtime/generators/generator_log.h"

#include <fmt/format.h>

namespace lanewise {

void GeneratorLog::write(const std::string& stream, std::string_view line) {
  if (path_.empty() || over_) return;
  if (!file_.is_open()) {
    file_.open(path_, std::ios::app);
    bytes_ = static_cast<std::uint64_t>(std::max<std::streamoff>(file_.tellp(), 0));  // a resumed run's are there
  }
  bytes_ += stream.size() + line.size() + 3;
  over_ = bytes_ > kMost;
  if (over_) {
    file_ << fmt::format("(more than {} bytes: the rest is not kept)", kMost) << std::endl;
  } else {
    file_ << stream << ": " << line << std::endl;
  }
  if (file_.good()) return;
  over_ = true;
  say_(fmt::format("warning: {} cannot be written; what the generators say is not kept", path_));
}

}  // namespace lanewise
