#include "nodes/csv_values.h"

#include <charconv>
#include <chrono>
#include <cmath>

namespace lanewise {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A cursor over text: each take_… moves on past what it took.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool done() const { return text_.empty(); }
  char peek() const { return text_.empty() ? '\0' : text_.front(); }
  bool take(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  // All digits that come, possibly none.
  std::string_view take_digits() {
    std::size_t n = 0;
    while (n < text_.size() && is_digit(text_[n])) ++n;
    const std::string_view digits = text_.substr(0, n);
    text_.remove_prefix(n);
    return digits;
  }
  // Exactly `count` digits.
  std::optional<int> take_number(std::size_t count) {
    if (text_.size() < count) return std::nullopt;
    int value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_digit(text_[i])) return std::nullopt;
      value = value * 10 + (text_[i] - '0');
    }
    text_.remove_prefix(count);
    return value;
  }

 private:
  std::string_view text_;
};

// Appends a decimal digit; false when the value no longer fits.
bool append_digit(std::int64_t& value, int digit) {
  return !__builtin_mul_overflow(value, std::int64_t{10}, &value) &&
         !__builtin_add_overflow(value, std::int64_t{digit}, &value);
}

// digits, with the decimal point `point` places after the first, cut off to a whole number.
std::optional<std::int64_t> whole(std::string_view digits, std::int64_t point) {
  std::int64_t value = 0;
  for (std::int64_t i = 0; i < point; ++i) {
    const bool inside = i < static_cast<std::int64_t>(digits.size());
    if (!inside && value == 0) break;
    if (!append_digit(value, inside ? digits[static_cast<std::size_t>(i)] - '0' : 0)) return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> parse_decimal_time(std::string_view text, int unit_digits) {
  Cursor cursor(text);
  const bool negative = cursor.take('-');
  if (!negative) cursor.take('+');
  std::string digits(cursor.take_digits());
  auto point = static_cast<std::int64_t>(digits.size());
  if (cursor.take('.')) digits += cursor.take_digits();
  if (digits.empty()) return std::nullopt;
  if (cursor.take('e') || cursor.take('E')) {
    const bool down = cursor.take('-');
    if (!down) cursor.take('+');
    const std::string_view exponent = cursor.take_digits();
    if (exponent.empty() || exponent.size() > 3) return std::nullopt;
    int value = 0;
    std::from_chars(exponent.data(), exponent.data() + exponent.size(), value);
    point += down ? -value : value;
  }
  if (!cursor.done()) return std::nullopt;
  const std::optional<std::int64_t> value = whole(digits, point + unit_digits);
  return value && negative ? std::optional(-*value) : value;
}

// "[T ]HH:MM[:SS[.fff]][Z|±HH:MM]", the part behind a date, in nanoseconds.
std::optional<std::int64_t> parse_clock(Cursor& cursor) {
  if (!cursor.take('T') && !cursor.take(' ')) return std::nullopt;
  const std::optional<int> hour = cursor.take_number(2);
  if (!hour || *hour > 23 || !cursor.take(':')) return std::nullopt;
  const std::optional<int> minute = cursor.take_number(2);
  if (!minute || *minute > 59) return std::nullopt;
  std::int64_t time = (*hour * 60 + *minute) * 60 * kSecond;
  if (cursor.take(':')) {
    const std::optional<int> second = cursor.take_number(2);
    if (!second || *second > 59) return std::nullopt;
    time += *second * kSecond;
    if (cursor.take('.')) {
      const std::string_view fraction = cursor.take_digits();
      if (fraction.empty()) return std::nullopt;
      time += *whole(std::string(fraction) + "000000000", 9);
    }
  }
  if (cursor.done() || cursor.take('Z')) return time;
  const bool east = cursor.take('+');
  if (!east && !cursor.take('-')) return std::nullopt;
  const std::optional<int> hours = cursor.take_number(2);
  cursor.take(':');
  const std::optional<int> minutes = cursor.take_number(2);
  if (!hours || !minutes || *minutes > 59) return std::nullopt;
  const std::int64_t offset = (*hours * 60 + *minutes) * 60 * kSecond;
  return east ? time - offset : time + offset;
}

std::optional<std::int64_t> parse_date(std::string_view text) {
  Cursor cursor(text);
  const std::optional<int> year = cursor.take_number(4);
  if (!year || !cursor.take('-')) return std::nullopt;
  const std::optional<int> month = cursor.take_number(2);
  if (!month || !cursor.take('-')) return std::nullopt;
  const std::optional<int> day = cursor.take_number(2);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  std::int64_t time = 0;
  if (__builtin_mul_overflow(days, 86'400 * kSecond, &time)) return std::nullopt;
  if (cursor.done()) return time;
  const std::optional<std::int64_t> clock = parse_clock(cursor);
  if (!clock || !cursor.done() || __builtin_add_overflow(time, *clock, &time)) return std::nullopt;
  return time;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_time(std::string_view text, const std::string& unit) {
  if (text.size() > 4 && text[4] == '-' && is_digit(text[0])) return parse_date(text);
  return parse_decimal_time(text, unit == "s" ? 9 : unit == "ms" ? 6 : unit == "us" ? 3 : 0);
}

std::optional<RowRange> parse_rows(std::string_view text) {
  RowRange range;
  if (text.empty()) return range;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return std::nullopt;
  const auto read = [](std::string_view part, std::int64_t& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() && value >= 0;
  };
  if (const std::string_view part = text.substr(0, colon); !part.empty() && !read(part, range.begin))
    return std::nullopt;
  if (const std::string_view part = text.substr(colon + 1); !part.empty()) {
    if (!read(part, range.end.emplace())) return std::nullopt;
    if (*range.end <= range.begin) return std::nullopt;
  }
  return range;
}

}  // namespace lanewise
