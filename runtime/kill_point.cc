#include "runtime/kill_point.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "graph/error.h"

namespace lanewise {

void kill_point(std::string_view name) {
  const char* variable = std::getenv("LANEWISE_KILL_AT");
  if (variable == nullptr) return;
  const std::string_view wish = variable;
  const std::size_t colon = wish.rfind(':');
  const std::string_view number = wish.substr(colon == std::string_view::npos ? wish.size() : colon + 1);
  std::uint64_t nth = 0;
  const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), nth);
  if (fault != std::errc() || end != number.data() + number.size() || nth == 0) {
    throw Error(Exit::kCommandLine,
                fmt::format("LANEWISE_KILL_AT is \"{}\"; give NAME:N, such as \"renamed:3\"", wish));
  }
  static std::atomic<std::uint64_t> passed{0};
  if (wish.substr(0, colon) == name && ++passed == nth) ::kill(::getpid(), SIGKILL);
}

}  // namespace lanewise
