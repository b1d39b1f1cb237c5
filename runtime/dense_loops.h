// A linear layer and its gradients in plain loops, for so few rows that calling the library costs more than the
// mathematics. Row-major; buffers do not overlap. A row's results do not depend on the other rows, bit for bit.
#pragma once

#include <cstdint>

namespace lanewise {

template <class T>
struct DenseLoops {
  // y = x Wᵀ + b: x [rows, in], w [out, in], b [out], y [rows, out].
  void (*forward)(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* b, T* y);
  // Adds gᵀx to gw [out, in] and Σ_rows g to gb [out]; unless it is null, gx [rows, in] becomes g W.
  void (*backward)(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* g, T* gw,
                   T* gb, T* gx);
};

// The fastest that this processor can run. T: float or double.
template <class T>
const DenseLoops<T>& dense_loops();
// Those that every processor can run.
template <class T>
const DenseLoops<T>& plain_dense_loops();

}  // namespace lanewise
