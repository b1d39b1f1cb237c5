#include "runtime/loops.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
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
double forward_error(const Loops<T>& loops, std::mt19937& random, std::int64_t rows, std::int64_t in,
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
double backward_error(const Loops<T>& loops, std::mt19937& random, std::int64_t rows, std::int64_t in, std::int64_t out,
                      bool input) {
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
double product_error(const Loops<T>& loops, std::mt19937& random, std::int64_t rows, std::int64_t inner,
                     std::int64_t columns) {
  const auto a = random_values<T>(random, rows * inner), b = random_values<T>(random, inner * columns),
             before = random_values<T>(random, rows * columns);
  auto c = before;
  loops.multiply(rows, inner, columns, a.data(), b.data(), c.data());
  double error = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < columns; ++i) {
      double right = before[r * columns + i];
      for (std::int64_t k = 0; k < inner; ++k) right += static_cast<double>(a[r * inner + k]) * b[k * columns + i];
      error = std::max(error, std::abs(c[r * columns + i] - right));
    }
  }
  return error;
}

template <class T>
void check(const Loops<T>& loops, double tolerance) {
  std::mt19937 random(kSeed);
  for (const std::int64_t rows : {1, 2, 3, 4, 7, 9, 16}) {
    for (const std::int64_t in : {1, 8, 15, 33, 131}) {
      for (const std::int64_t out : {1, 17, 70}) {
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        CHECK(forward_error(loops, random, rows, in, out) <= tolerance);
        CHECK(product_error(loops, random, rows, in, out) <= tolerance);
        for (const bool input : {true, false}) CHECK(backward_error(loops, random, rows, in, out, input) <= tolerance);
      }
    }
  }
}

}  // namespace

TEST_CASE("loops: the fastest and the plain ones are the definition, for any sizes") {
  check(loops<float>(), 1e-4);
  check(plain_loops<float>(), 1e-4);
  check(loops<double>(), 1e-12);
  check(plain_loops<double>(), 1e-12);
}

TEST_CASE("loops: activations and their slopes are those of the definition, wherever an element stands") {
  const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * M_PI); };
  const auto cdf = [](double z) { return std::erfc(-z / std::sqrt(2)) / 2; };
  const auto logistic = [](double z) { return 1 / (1 + std::exp(-z)); };
  struct Function {
    Activation which;
    std::function<double(double)> value, slope;
  };
  const std::vector<Function> functions = {
      {Activation::kRelu, [](double z) { return std::max(z, 0.0); }, [](double z) { return z > 0 ? 1.0 : 0.0; }},
      {Activation::kTanh, [](double z) { return std::tanh(z); },
       [](double z) { return 1 - std::pow(std::tanh(z), 2); }},
      {Activation::kGelu, [&](double z) { return z * cdf(z); }, [&](double z) { return cdf(z) + z * density(z); }},
      {Activation::kSilu, [&](double z) { return z * logistic(z); },
       [&](double z) { return logistic(z) * (1 + z * (1 - logistic(z))); }}};
  const auto check_all = [&]<class T>(const Loops<T>& loops, double tolerance) {
    std::mt19937 random(kSeed);
    const std::int64_t count = 37;
    auto z = random_values<T>(random, padded(count));
    for (T& one : z) one *= 3;
    z[5] = -300, z[6] = 300, z[36] = z[0];
    for (const Function& f : functions) {
      const auto at = static_cast<std::size_t>(f.which);
      CAPTURE(at);
      std::vector<T> h(z.size()), g(z.size(), 2);
      loops.activate[at](count, z.data(), h.data());
      loops.back_activate[at](count, z.data(), g.data());
      for (std::int64_t i = 0; i < count; ++i) {
        CAPTURE(z[i]);
        CHECK(std::abs(h[i] - f.value(z[i])) <= tolerance * std::max(1.0, std::abs(f.value(z[i]))));
        CHECK(std::abs(g[i] - 2 * f.slope(z[i])) <= tolerance);
      }
      CHECK(h[36] == h[0]);
      z[1] = std::numeric_limits<T>::quiet_NaN();
      loops.activate[at](count, z.data(), h.data());
      CHECK(std::isnan(h[1]));
      z[1] = 1;
    }
  };
  check_all(loops<float>(), 2e-6);
  check_all(plain_loops<float>(), 2e-6);
  check_all(loops<double>(), 1e-14);
  check_all(plain_loops<double>(), 1e-14);
}

TEST_CASE("loops: lanes are added in double and rounded once, squares and what is not finite are found anywhere") {
  const auto check_all = [&]<class T>(const Loops<T>& loops) {
    std::mt19937 random(kSeed);
    for (const std::int64_t count : {1, 7, 32, 100, 5000}) {
      CAPTURE(count);
      std::vector<std::vector<T>> lanes;
      std::vector<const T*> pointers;
      for (int lane = 0; lane < 5; ++lane) lanes.push_back(random_values<T>(random, count));
      for (const auto& lane : lanes) pointers.push_back(lane.data());
      std::vector<T> out(static_cast<std::size_t>(count), 9);
      loops.add_lanes(pointers.data(), 5, 1, count, 0.3, out.data());
      CHECK(out[0] == 9);
      double squares = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (const auto& lane : lanes) sum += lane[i];
        if (i > 0) CHECK(out[i] == static_cast<T>(sum * 0.3));
        squares += double{lanes[0][i]} * lanes[0][i];
      }
      CHECK(loops.squares(lanes[0].data(), count) == doctest::Approx(squares).epsilon(1e-13));
      CHECK(loops.all_finite(lanes[0].data(), count));
      for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
        const T before = std::exchange(lanes[0][at], std::numeric_limits<T>::infinity());
        CHECK_FALSE(loops.all_finite(lanes[0].data(), count));
        lanes[0][at] = before;
      }
    }
  };
  check_all(loops<float>());
  check_all(plain_loops<float>());
  check_all(loops<double>());
  check_all(plain_loops<double>());
}
