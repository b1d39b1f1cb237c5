// Counter-based random numbers by Philox4x32-10.
#include "runtime/random.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <numbers>
#include <string>

#include "graph/sha256.h"

namespace lanewise {
namespace {

// The first eight bytes of the SHA-256 of "seed/purpose/id": purposes have no slash, so that no two triples share a
// text.
std::uint64_t key_of(std::uint64_t seed, std::string_view purpose, std::string_view id) {
  const std::string digest = sha256_hex(fmt::format("{}/{}/{}", seed, purpose, id));
  std::uint64_t key = 0;
  std::from_chars(digest.data(), digest.data() + 16, key, 16);
  return key;
}

constexpr std::uint32_t low_word(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high_word(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high_word(b) ^ counter[1] ^ key[0], low_word(b), high_word(a) ^ counter[3] ^ key[1], low_word(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

Random::Random(std::uint64_t seed, std::string_view purpose, std::string_view id, std::uint64_t counter)
    : key_(key_of(seed, purpose, id)), counter_(counter) {}

Random Random::at(std::uint64_t counter) const {
  Random other = *this;
  other.counter_ = counter;
  other.block_ = 0;
  other.used_ = 4;
  other.has_spare_ = false;
  return other;
}

std::uint64_t Random::bits() {
  if (used_ == 4) {
    words_ = philox4x32({low_word(counter_), high_word(counter_), low_word(block_), high_word(block_)},
                        {low_word(key_), high_word(key_)});
    ++block_;
    used_ = 0;
  }
  const std::uint64_t low = words_[used_], high = words_[used_ + 1];
  used_ += 2;
  return high << 32 | low;
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::uniform(double low, double high) { return low + (high - low) * uniform(); }

double Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // 1 - uniform() is in (0, 1]
  const double angle = 2 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace lanewise
