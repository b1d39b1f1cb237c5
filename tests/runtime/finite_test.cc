#include "runtime/finite.h"

#include <ATen/ATen.h>

#include "tests/check.h"

using namespace lanewise;

TEST_CASE("finite: one NaN or infinity at any place of any length is seen") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int length : {1, 7, 8, 9, 4096, 4097, 10'000}) {
      at::Tensor t = at::ones({length}, dtype) * -3e38;  // sums would overflow a float
      CHECK(all_finite(t, length));
      for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
        for (const int at : {0, length / 2, length - 1}) {
          const at::Tensor spoiled = t.clone();
          spoiled[at] = bad;
          CHECK_FALSE(all_finite(spoiled, length));
          CHECK(all_finite(spoiled, at));
        }
      }
    }
  }
}

TEST_CASE("finite: the norm is that of the first elements, in double") {
  const at::Tensor t = at::arange(1, 12, at::kFloat);
  CHECK(norm(t, 3) == doctest::Approx(std::sqrt(14.0)).epsilon(1e-15));
  CHECK(norm(t, 11) == doctest::Approx(std::sqrt(506.0)).epsilon(1e-15));
  CHECK(norm(at::full({2}, 1e200, at::kDouble), 0) == 0);
}
