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
  if (const std::optional<int> value = whole_number(variable(name), least, most)) return *value;
  refuse_variable(name, rule.empty() ? fmt::format("a number from {} to {}", least, most) : rule);
}

bool word_variable(const char* name, const std::string& word) {
  const std::string text = variable(name);
  if (!text.empty() && text != word) refuse_variable(name, fmt::format("\"{}\", or unset", word));
  return text == word;
}

void refuse_variable(const char* name, const std::string& rule) {
  throw Error(Exit::kCommandLine,
              fmt::format("the environment variable {} is \"{}\", and has to be {}", name, variable(name), rule));
}

std::optional<int> whole_number(const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && least <= value && value <= most ? std::optional(value) : std::nullopt;
}

}  // namespace lanewise
