#include "runtime/random.h"

#include <cmath>
#include <set>

#include "tests/check.h"

using namespace lanewise;

namespace {

using Words = std::array<std::uint32_t, 4>;

std::vector<std::uint64_t> draw(Random random, int count) {
  std::vector<std::uint64_t> values(count);
  for (std::uint64_t& value : values) value = random.bits();
  return values;
}

}  // namespace

TEST_CASE("random: Philox gives the words its authors publish") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: the numbers of a seed stay the same from version to version") {
  CHECK(draw(Random(7, "train", "gen0", 3), 3) ==
        std::vector<std::uint64_t>{17065144161240247895u, 15785901856979932707u, 4501463757732849148u});
}

TEST_CASE("random: seed, purpose, id and counter each give other numbers, and the same ones again") {
  const auto first = draw(Random(7, "train", "gen0", 3), 10);
  CHECK(draw(Random(7, "train", "gen0", 3), 10) == first);
  CHECK(draw(Random(8, "train", "gen0", 3), 10) != first);
  CHECK(draw(Random(7, "evaluate", "gen0", 3), 10) != first);
  CHECK(draw(Random(7, "train", "gen1", 3), 10) != first);
  CHECK(draw(Random(7, "train", "gen0", 4), 10) != first);
  CHECK(draw(Random(7, "train", "gen0", std::uint64_t{3} << 32), 10) != first);
}

TEST_CASE("random: at() starts afresh at another counter, whatever was drawn before") {
  Random random(7, "train", "gen0");
  random.normal();  // leaves a spare behind
  Random there = random.at(500), right(7, "train", "gen0", 500);
  for (int i = 0; i < 10; ++i) CHECK(there.normal() == right.normal());
}

TEST_CASE("random: sixteen streams of one seed share no window of eight values") {
  std::set<std::vector<double>> windows;
  std::size_t expected = 0;
  for (int stream = 0; stream < 16; ++stream) {
    const Random stream_random(7, "train", "gen" + std::to_string(stream));
    std::vector<double> values(1000);
    for (int seq = 0; seq < 1000; ++seq) values[seq] = stream_random.at(seq).normal();
    for (std::size_t i = 0; i + 8 <= values.size(); ++i) {
      windows.insert({values.begin() + i, values.begin() + i + 8});
      ++expected;
    }
  }
  CHECK(windows.size() == expected);
}

TEST_CASE("random: uniform and normal numbers have the moments and bounds of their names") {
  Random random(1, "train", "moments");
  const int count = 200'000;
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0, normal_fourth = 0, low = 1, high = 0;
  for (int i = 0; i < count; ++i) {
    const double u = random.uniform(), n = random.normal();
    low = std::min(low, u);
    high = std::max(high, u);
    sum += u;
    squares += u * u;
    normal_sum += n;
    normal_squares += n * n;
    normal_fourth += n * n * n * n;
  }
  CHECK(low >= 0);
  CHECK(high < 1);
  CHECK(std::abs(sum / count - 0.5) < 0.005);
  CHECK(std::abs(squares / count - 1.0 / 3) < 0.005);
  CHECK(std::abs(normal_sum / count) < 0.01);
  CHECK(std::abs(normal_squares / count - 1) < 0.02);
  CHECK(std::abs(normal_fourth / count - 3) < 0.15);
  for (int i = 0; i < 1000; ++i) {
    const double value = random.uniform(-2, 5);
    CHECK(value >= -2);
    CHECK(value < 5);
  }
}
