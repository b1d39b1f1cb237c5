#include "runtime/moments.h"

#include <ATen/ATen.h>

#include <limits>

#include "tests/check.h"

namespace lanewise {
namespace {

TEST_CASE("moments: mean and population deviation by column of the last axis") {
  Moments moments;
  moments.add(at::tensor({1.0, 10.0, 3.0, 30.0}).reshape({2, 2}));
  moments.add(at::tensor({5.0, 20.0}));
  CHECK(moments.mean()[0] == doctest::Approx(3));
  CHECK(moments.mean()[1] == doctest::Approx(20));
  CHECK(moments.scale()[0] == doctest::Approx(std::sqrt(8.0 / 3)));
  CHECK(moments.scale()[1] == doctest::Approx(std::sqrt(200.0 / 3)));
}

TEST_CASE("moments: what is not finite does not count") {
  Moments moments;
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double v : {2.0, nan, 4.0, infinity, -infinity}) moments.add(at::tensor({v, nan}));
  CHECK(moments.mean() == std::vector<double>{3, 0});
  CHECK(moments.scale() == std::vector<double>{1, 1});
}

TEST_CASE("moments: a constant column has scale 1, also where rounding stirs it") {
  Moments moments;
  for (int i = 0; i < 1000; ++i) moments.add(at::tensor({0.1f, 1e9f}).to(at::kDouble) + (i % 2) * 1e-18);
  CHECK(moments.scale() == std::vector<double>{1, 1});
  Moments single;
  single.add(at::tensor({7.0}));
  CHECK(single.scale() == std::vector<double>{1});
}

TEST_CASE("moments: a small spread on a large mean keeps its digits") {
  Moments moments;
  for (int i = 0; i < 1000; ++i) moments.add(at::tensor({1e9 + i % 2}, at::kDouble));
  CHECK(moments.scale()[0] == doctest::Approx(0.5));
}

}  // namespace
}  // namespace lanewise
