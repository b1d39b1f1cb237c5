#include "graph/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lanewise {
namespace {

constexpr std::size_t kShownLength = 80;  // characters of a user's text that a message repeats

void append_escaped(std::string& out, std::string_view text, bool quote, std::size_t limit) {
  for (std::size_t i = 0, n = 0; i < text.size(); ++n) {
    if (n == limit) {
      out += "…";
      return;
    }
    const std::size_t start = i;
    const std::optional<char32_t> c = decode_utf8(text, i);
    if (!c) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
    } else if (*c == '\n') {
      out += "\\n";
    } else if (*c == '\t') {
      out += "\\t";
    } else if (!is_printable(*c)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(*c));
    } else {
      if (quote && (*c == '"' || *c == '\\')) out += '\\';
      out += text.substr(start, i - start);
    }
  }
}

}  // namespace

std::optional<char32_t> decode_utf8(std::string_view text, std::size_t& i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) {
    ++i;
    return lead;
  }
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - i <= static_cast<std::size_t>(more)) return std::nullopt;
  char32_t c = lead & (0x3f >> more);
  for (int k = 1; k <= more; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return std::nullopt;
    c = c << 6 | (byte(i + k) & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  if (c < kSmallest[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return std::nullopt;
  i += more + 1;
  return c;
}

std::size_t find_bad_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
    } else if (!decode_utf8(text, i)) {
      return i;
    }
  }
  return std::string_view::npos;
}

bool is_printable(char32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfeff) return false;
  return !((c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069));
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string escaped(std::string_view text) {
  std::string out;
  append_escaped(out, text, /*quote=*/false, std::string_view::npos);
  return out;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  append_escaped(out, text, /*quote=*/true, kShownLength);
  return out + '"';
}

std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string instances_text(const std::string& base, std::int64_t first, std::int64_t last) {
  if (first == last) return fmt::format("{}{}", base, first);
  return fmt::format("{0}{1} {2} {0}{3}", base, first, last == first + 1 ? "and" : "to", last);
}

std::string counted(std::size_t n, const std::string& noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace lanewise
