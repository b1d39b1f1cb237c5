#include "tools/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <optional>
#include <system_error>

#include "graph/error.h"
#include "graph/text.h"

namespace lanewise {
namespace {

// 0, or the errno of the write that failed.
int write_all(int descriptor, const std::string& text) noexcept {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      return n == 0 ? EIO : errno;
    }
  }
  return 0;
}

int g_output = STDOUT_FILENO;  // set before any thread is started

}  // namespace

void keep_output_apart() {
  const int own = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return;  // no descriptor is left: then they share it
  g_output = own;
}

void Output::write(const std::string& text) {
  if (const int error = write_all(g_output, visible(text))) {
    throw Error(Exit::kCommandLine, fmt::format("standard output cannot be written ({}); send it somewhere else",
                                                std::generic_category().message(error)));
  }
}

void Output::try_write(const std::string& text) noexcept { write_all(g_output, visible(text)); }

void write_error(const std::string& text) noexcept { write_all(STDERR_FILENO, visible(text)); }

void say_line(const std::string& line) noexcept { write_error(line + "\n"); }

void write_terminal(const std::string& text) noexcept { write_all(STDERR_FILENO, text); }

bool error_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

std::string visible(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const std::optional<char32_t> character = decode_utf8(text, i);
    if (!character) ++i;
    if (character && (*character == '\n' || is_printable(*character))) {
      out.append(text, begin, i - begin);
    } else {
      for (std::size_t k = begin; k < i; ++k) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[k]));
    }
  }
  return out;
}

std::string to_text(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t character = decode_utf8(text, i).value();  // dump() has replaced what is no UTF-8
    const auto number = static_cast<std::uint32_t>(character);
    if (character == '\n' || is_printable(character)) {
      out.append(text, begin, i - begin);
    } else if (number < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((number - 0x10000) >> 10), 0xdc00 + (number & 0x3ff));
    }
  }
  return out;
}

std::string grouped(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), 1, ',');
  return digits;
}

std::string short_number(double number) {
  const double size = std::fabs(number);
  if (size >= 1e4 && size < 1e7) return fmt::format("{:.0f}", number);
  return fmt::format("{:.4g}", number);
}

std::string columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t c = 0; c < row.size(); ++c) line += row[c] + std::string(widths[c] - width(row[c]) + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lanewise
