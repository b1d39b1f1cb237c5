#include "runtime/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "graph/error.h"

namespace lanewise {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_variable(const char* name, int least, int most, const std::string& rule) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && least <= value && value <= most) return value;
  throw Error(Exit::kCommandLine,
              fmt::format("the environment variable {} is \"{}\", and has to be {}", name, text,
                          rule.empty() ? fmt::format("a number from {} to {}", least, most) : rule));
}

}  // namespace lanewise
