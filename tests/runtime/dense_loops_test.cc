#include "runtime/dense_loops.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

using namespace lanewise;

namespace {

constexpr int kSeed = 11;

template <class T>
std::vector<T> random_values(std::mt19937& random, std::int64_t n) {
  std::normal_distribution<double> normal;
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

// The largest difference of `got` from what the definition gives in double.
template <class T>
double forward_error(const DenseLoops<T>& loops, std::mt19937& random, std::int64_t rows, std::int64_t in,
                     std::int64_t out) {
  const auto x = random_values<T>(random, rows * in), w = random_values<T>(random, out * in),
             b = random_values<T>(random, out);
  std::vector<T> y(static_cast<std::size_t>(rows * out));
  loops.forward(rows, in, out, x.data(), w.data(), b.data(), y.data());
  double error = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      double right = b[o];
      for (std::int64_t i = 0; i < in; ++i) right += static_cast<double>(w[o * in + i]) * x[r * in + i];
      error = std::max(error, std::abs(y[r * out + o] - right));
    }
  }
  return error;
}

template <class T>
double backward_error(const DenseLoops<T>& loops, std::mt19937& random, std::int64_t rows, std::int64_t in,
                      std::int64_t out, bool input) {
  const auto x = random_values<T>(random, rows * in), w = random_values<T>(random, out * in),
             g = random_values<T>(random, rows * out), gw_before = random_values<T>(random, out * in),
             gb_before = random_values<T>(random, out);
  auto gw = gw_before, gb = gb_before, gx = random_values<T>(random, rows * in);
  loops.backward(rows, in, out, x.data(), w.data(), g.data(), gw.data(), gb.data(), input ? gx.data() : nullptr);
  double error = 0;
  const auto compare = [&](T got, double right) { error = std::max(error, std::abs(got - right)); };
  for (std::int64_t o = 0; o < out; ++o) {
    double bias = gb_before[o];
    for (std::int64_t r = 0; r < rows; ++r) bias += g[r * out + o];
    compare(gb[o], bias);
    for (std::int64_t i = 0; i < in; ++i) {
      double weight = gw_before[o * in + i];
      for (std::int64_t r = 0; r < rows; ++r) weight += static_cast<double>(g[r * out + o]) * x[r * in + i];
      compare(gw[o * in + i], weight);
    }
  }
  for (std::int64_t r = 0; input && r < rows; ++r) {
    for (std::int64_t i = 0; i < in; ++i) {
      double right = 0;
      for (std::int64_t o = 0; o < out; ++o) right += static_cast<double>(g[r * out + o]) * w[o * in + i];
      compare(gx[r * in + i], right);
    }
  }
  return error;
}

template <class T>
void check(const DenseLoops<T>& loops, double tolerance) {
  std::mt19937 random(kSeed);
  for (const std::int64_t rows : {1, 2, 3, 4, 7, 9}) {
    for (const std::int64_t in : {1, 8, 15, 33}) {
      for (const std::int64_t out : {1, 17}) {
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        CHECK(forward_error(loops, random, rows, in, out) <= tolerance);
        for (const bool input : {true, false}) CHECK(backward_error(loops, random, rows, in, out, input) <= tolerance);
      }
    }
  }
}

}  // namespace

TEST_CASE("dense loops: the fastest and the plain ones are the definition, for any sizes") {
  check(dense_loops<float>(), 1e-4);
  check(plain_dense_loops<float>(), 1e-4);
  check(dense_loops<double>(), 1e-12);
  check(plain_dense_loops<double>(), 1e-12);
}
