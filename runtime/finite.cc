#include "runtime/finite.h"

#include <array>
#include <cmath>

namespace lanewise {
namespace {

template <class T>
bool finite(const T* values, std::int64_t count) {
  // x - x is 0 for a finite x, else NaN: a sum over blocks tells without a branch an element.
  constexpr std::int64_t kBlock = 4096;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(count, begin + kBlock);
    std::array<T, 8> bad{};
    std::int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      for (int lane = 0; lane < 8; ++lane) bad[lane] += values[i + lane] - values[i + lane];
    }
    T sum = 0;
    for (; i < end; ++i) sum += values[i] - values[i];
    for (const T b : bad) sum += b;
    if (!(sum == 0)) return false;
  }
  return true;
}

template <class T>
double squares(const T* values, std::int64_t count) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += double{values[i + lane]} * double{values[i + lane]};
  }
  double sum = 0;
  for (; i < count; ++i) sum += double{values[i]} * double{values[i]};
  for (const double s : sums) sum += s;
  return sum;
}

}  // namespace

bool all_finite(const at::Tensor& flat, std::int64_t count) {
  return flat.scalar_type() == at::kFloat ? finite(flat.const_data_ptr<float>(), count)
                                          : finite(flat.const_data_ptr<double>(), count);
}

double norm(const at::Tensor& flat, std::int64_t count) {
  return std::sqrt(flat.scalar_type() == at::kFloat ? squares(flat.const_data_ptr<float>(), count)
                                                    : squares(flat.const_data_ptr<double>(), count));
}

}  // namespace lanewise
