// Compiled with -O3 and without the precompiled header: the compiler turns the inner loops into vector instructions.
#include "runtime/dense_loops.h"

#include <algorithm>

namespace lanewise {
namespace {

#define LANEWISE_INLINE [[gnu::always_inline]] inline

// R rows at once, so that each weight is loaded once for all of them.
template <int R, class T>
LANEWISE_INLINE void forward_rows(std::int64_t in, std::int64_t out, const T* __restrict x, const T* __restrict w,
                                  const T* __restrict b, T* __restrict y) {
  using Vector [[gnu::vector_size(32), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
  constexpr int kWidth = sizeof(Vector) / sizeof(T), kParts = 2;  // sums that run side by side hide an addition's delay
  for (std::int64_t o = 0; o < out; ++o, w += in) {
    Vector partial[R][kParts] = {};
    std::int64_t i = 0;
    for (; i + kParts * kWidth <= in; i += kParts * kWidth) {
      for (int p = 0; p < kParts; ++p) {
        const Vector weights = *reinterpret_cast<const Vector*>(w + i + p * kWidth);
        for (int r = 0; r < R; ++r)
          partial[r][p] += weights * *reinterpret_cast<const Vector*>(x + r * in + i + p * kWidth);
      }
    }
    for (int r = 0; r < R; ++r) {
      const Vector both = partial[r][0] + partial[r][1];
      T sum = b[o];
      for (int j = 0; j < kWidth; ++j) sum += both[j];
      for (std::int64_t rest = i; rest < in; ++rest) sum += w[rest] * x[r * in + rest];
      y[r * out + o] = sum;
    }
  }
}

template <int R, bool kInput, class T>
LANEWISE_INLINE void backward_rows(std::int64_t in, std::int64_t out, const T* __restrict x, const T* __restrict w,
                                   const T* __restrict g, T* __restrict gw, T* __restrict gb, T* __restrict gx) {
  for (std::int64_t o = 0; o < out; ++o, w += in, gw += in) {
    T at[R];
    for (int r = 0; r < R; ++r) {
      at[r] = g[r * out + o];
      gb[o] += at[r];
    }
    for (std::int64_t i = 0; i < in; ++i) {
      T sum = gw[i];
      for (int r = 0; r < R; ++r) sum += at[r] * x[r * in + i];
      gw[i] = sum;
      if constexpr (kInput) {
        for (int r = 0; r < R; ++r) gx[r * in + i] += at[r] * w[i];
      }
    }
  }
}

constexpr std::int64_t kBlock = 4;  // rows at once

template <class T>
LANEWISE_INLINE void forward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* b,
                             T* y) {
  std::int64_t r = 0;
  for (; r + kBlock <= rows; r += kBlock) forward_rows<kBlock>(in, out, x + r * in, w, b, y + r * out);
  for (; r + 2 <= rows; r += 2) forward_rows<2>(in, out, x + r * in, w, b, y + r * out);
  for (; r < rows; ++r) forward_rows<1>(in, out, x + r * in, w, b, y + r * out);
}

template <bool kInput, class T>
LANEWISE_INLINE void backward_blocks(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w,
                                     const T* g, T* gw, T* gb, T* gx) {
  const auto input = [&](std::int64_t r) { return kInput ? gx + r * in : nullptr; };
  std::int64_t r = 0;
  for (; r + kBlock <= rows; r += kBlock)
    backward_rows<kBlock, kInput>(in, out, x + r * in, w, g + r * out, gw, gb, input(r));
  for (; r + 2 <= rows; r += 2) backward_rows<2, kInput>(in, out, x + r * in, w, g + r * out, gw, gb, input(r));
  for (; r < rows; ++r) backward_rows<1, kInput>(in, out, x + r * in, w, g + r * out, gw, gb, input(r));
}

template <class T>
LANEWISE_INLINE void backward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* g,
                              T* gw, T* gb, T* gx) {
  if (gx == nullptr) return backward_blocks<false>(rows, in, out, x, w, g, gw, gb, gx);
  std::fill_n(gx, rows * in, T{0});
  backward_blocks<true>(rows, in, out, x, w, g, gw, gb, gx);
}

template <class T>
struct Plain {
  static void run_forward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* b,
                          T* y) {
    forward(rows, in, out, x, w, b, y);
  }
  static void run_backward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* g,
                           T* gw, T* gb, T* gx) {
    backward(rows, in, out, x, w, g, gw, gb, gx);
  }
};

#ifdef __x86_64__
template <class T>
struct Avx2 {
  [[gnu::target("avx2,fma")]] static void run_forward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x,
                                                      const T* w, const T* b, T* y) {
    forward(rows, in, out, x, w, b, y);
  }
  [[gnu::target("avx2,fma")]] static void run_backward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x,
                                                       const T* w, const T* g, T* gw, T* gb, T* gx) {
    backward(rows, in, out, x, w, g, gw, gb, gx);
  }
};
#endif

template <class T>
DenseLoops<T> choose() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {Avx2<T>::run_forward, Avx2<T>::run_backward};
#endif
  return plain_dense_loops<T>();
}

}  // namespace

template <class T>
const DenseLoops<T>& plain_dense_loops() {
  static const DenseLoops<T> loops = {Plain<T>::run_forward, Plain<T>::run_backward};
  return loops;
}

template <class T>
const DenseLoops<T>& dense_loops() {
  static const DenseLoops<T> loops = choose<T>();
  return loops;
}

template const DenseLoops<float>& dense_loops();
template const DenseLoops<double>& dense_loops();
template const DenseLoops<float>& plain_dense_loops();
template const DenseLoops<double>& plain_dense_loops();

}  // namespace lanewise
