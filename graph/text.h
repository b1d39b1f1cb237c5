// Text in messages: what a user wrote is shown on one line, without control characters, and never at any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lanewise {

// The character at `i`, moving i behind it; nullopt, with i unchanged, where the text is not well-formed UTF-8.
// Requires: i < text.size().
std::optional<char32_t> decode_utf8(std::string_view text, std::size_t& i);
// Where the first ill-formed byte is, or npos.
std::size_t find_bad_utf8(std::string_view text);
// False for control characters and those that change the direction or the lines of text.
bool is_printable(char32_t c);
// How many columns a terminal needs, one a character.
std::size_t width(std::string_view text);

// Every character that is not printable as an escape (\n, \u001b, \xff).
std::string escaped(std::string_view text);
// The same in double quotes, with quotes and backslashes escaped, shortened when long.
std::string in_quotes(std::string_view text);
// A value in a message: `3.7`, `"abc"`, `a list`, `an object`.
std::string shown(const nlohmann::json& value);

// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& items);
// "gen3", "gen3 and gen4", "gen3 to gen9": instances first … last of `base`.
std::string instances_text(const std::string& base, std::int64_t first, std::int64_t last);
// "1 node", "2 nodes".
std::string counted(std::size_t n, const std::string& noun);

}  // namespace lanewise
