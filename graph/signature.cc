#include "graph/signature.h"

#include <fmt/format.h>

#include <algorithm>

namespace lanewise {
namespace {

// 18049 -> "18,049", whatever the locale.
std::string grouped(std::int64_t n) {
  const std::string digits = fmt::format("{}", n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void Signature::append(const Signature& other) {
  streams.insert(streams.end(), other.streams.begin(), other.streams.end());
  // Unknown when a stream that ends does not tell.
  if (endless) {
    length = other.length;
    endless = other.endless;
  } else if (!other.endless) {
    length = length && other.length ? std::optional(std::min(*length, *other.length)) : std::nullopt;
  }
}

std::string Signature::text() const {
  if (parameters) return grouped(*parameters) + " parameters";
  if (!x && !y) return "unknown until run";
  const std::string of_classes = integer_target ? " of classes" : "";
  if (!x) return fmt::format("y {}{}", to_string(*y), of_classes);
  const auto shape = [](const std::optional<Shape>& s) { return s ? to_string(*s) : "unknown until run"; };
  return fmt::format("x {}, y {}{}", shape(x), shape(y), of_classes);
}

}  // namespace lanewise
