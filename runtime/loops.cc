// Compiled with -O3 and without the precompiled header: what follows is code for several kinds of processors.
#include "runtime/loops.h"

#include <type_traits>
#include <utility>

namespace lanewise {
namespace {

// Told here, not by <cmath>, so that loops may call the vector library (libmvec) that comes with the C library.
#define LANEWISE_VECTOR_MATH __attribute__((simd("notinbranch"), const, nothrow))
extern "C" {
LANEWISE_VECTOR_MATH float expf(float);
LANEWISE_VECTOR_MATH double exp(double);
LANEWISE_VECTOR_MATH float tanhf(float);
LANEWISE_VECTOR_MATH double tanh(double);
LANEWISE_VECTOR_MATH float erff(float);
LANEWISE_VECTOR_MATH double erf(double);
}
#define LANEWISE_INLINE [[gnu::always_inline]] inline
LANEWISE_INLINE float math_exp(float v) { return expf(v); }
LANEWISE_INLINE double math_exp(double v) { return exp(v); }
LANEWISE_INLINE float math_tanh(float v) { return tanhf(v); }
LANEWISE_INLINE double math_tanh(double v) { return tanh(v); }
LANEWISE_INLINE float math_erf(float v) { return erff(v); }
LANEWISE_INLINE double math_erf(double v) { return erf(v); }

namespace plain {
constexpr int kBytes = 16;
#include "runtime/loops.inc"
#include "runtime/recurrent_loops.inc"
}  // namespace plain

#ifdef __x86_64__
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int kBytes = 32;
#include "runtime/loops.inc"
#include "runtime/recurrent_loops.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")
namespace avx512 {
constexpr int kBytes = 64;
#include "runtime/loops.inc"
#include "runtime/recurrent_loops.inc"
}  // namespace avx512
#pragma GCC pop_options
#endif

template <class T>
Loops<T> choose() {
#ifdef __x86_64__
  const bool vectors256 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (vectors256 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return avx512::loops<T>();
  }
  if (vectors256) return avx2::loops<T>();
#endif
  return plain::loops<T>();
}

}  // namespace

template <class T>
const Loops<T>& plain_loops() {
  static const Loops<T> all = plain::loops<T>();
  return all;
}

template <class T>
const Loops<T>& loops() {
  static const Loops<T> all = choose<T>();
  return all;
}

template const Loops<float>& loops();
template const Loops<double>& loops();
template const Loops<float>& plain_loops();
template const Loops<double>& plain_loops();

}  // namespace lanewise
