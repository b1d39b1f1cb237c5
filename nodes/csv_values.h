// Numbers and times from the text of a CSV field, whatever the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lanewise {

// A finite decimal number: "3.14", "-1e-3", "+2". nullopt for anything else, "inf", "0x1p3" and "1,5" among it.
std::optional<double> parse_number(std::string_view text);

// Nanoseconds, exactly. Either a decimal number of `unit` ("s", "ms", "us", "ns"); digits below a nanosecond are cut
// off. Or a date, 1970 being 0: YYYY-MM-DD, then optionally T or a blank and HH:MM[:SS[.fff]], then optionally Z or
// +HH:MM or -HH:MM. nullopt for anything else, and for what does not fit in 64 bits.
std::optional<std::int64_t> parse_time(std::string_view text, const std::string& unit);

// "a:b": target rows a up to b, b excluded, counted from 0; either may be left out.
struct RowRange {
  std::int64_t begin = 0;
  std::optional<std::int64_t> end;
};
std::optional<RowRange> parse_rows(std::string_view text);

}  // namespace lanewise
