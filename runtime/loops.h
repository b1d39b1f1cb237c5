// The inner loops of training on the host in vector instructions, for tensors so small that calling the library costs
// more than the mathematics. Row-major; buffers do not overlap.
#pragma once

#include <array>
#include <cstdint>

namespace lanewise {

enum class Activation { kRelu, kTanh, kGelu, kSilu };

// What activate and back_activate read and write, in elements: buffers have this many more than they need.
constexpr std::int64_t kPadding = 16;
constexpr std::int64_t padded(std::int64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

template <class T>
struct Loops {
  // y = x Wᵀ + b: x [rows, in], w [out, in], b [out], y [rows, out]. A row's results do not depend on the other rows,
  // bit for bit.
  void (*forward)(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* b, T* y);
  // Adds gᵀx to gw [out, in] and Σ_rows g to gb [out]; unless it is null, gx [rows, in] becomes g W,
  // and w is looked at.
  void (*backward)(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* g, T* gw,
                   T* gb, T* gx);
  // c += a b for a [rows, inner], b [inner, columns], c [rows, columns]; rows as in forward().
  void (*multiply)(std::int64_t rows, std::int64_t inner, std::int64_t columns, const T* a, const T* b, T* c);
  // A row's step of a gru (runtime/model_gru.cc). `gates` [3, hidden]: the arguments of r and z, which become these,
  // and Whn h + bhn; xn: Win x + bin; next: h after the step.
  void (*gru_step)(std::int64_t hidden, T* gates, const T* xn, const T* h, T* n, T* next);
  // d_h, the gradient of h after the step, becomes that of h before it but for what goes through the gates; d_gates and
  // d_xn become those of the arguments.
  void (*gru_back)(std::int64_t hidden, const T* gates, const T* n, const T* h, T* d_h, T* d_gates, T* d_xn);
  // The same of an lstm (runtime/model_lstm.cc): `gates` [4, hidden] are the arguments of i, f, g, o, and become these.
  void (*lstm_step)(std::int64_t hidden, T* gates, const T* c, T* next_c, T* tanh_c, T* next);
  // d_c, the gradient of c after the step but for what comes from h, becomes that of c before it.
  void (*lstm_back)(std::int64_t hidden, const T* gates, const T* c, const T* tanh_c, const T* d_h, T* d_c, T* d_gates);
  // out[i] = scale · Σ lanes[·][i] for i from begin to end: added in their order in double, and rounded once.
  void (*add_lanes)(const T* const* lanes, std::int64_t lane_count, std::int64_t begin, std::int64_t end, double scale,
                    T* out);
  double (*squares)(const T* values, std::int64_t count);  // Σ v², in double
  bool (*all_finite)(const T* values, std::int64_t count);
  // h = f(z) and g = g · f'(z) for padded(count) elements; by Activation.
  std::array<void (*)(std::int64_t count, const T* z, T* h), 4> activate;
  std::array<void (*)(std::int64_t count, const T* z, T* g), 4> back_activate;
};

// The fastest that this processor can run. T: float or double.
template <class T>
const Loops<T>& loops();
// Those that every processor can run.
template <class T>
const Loops<T>& plain_loops();

}  // namespace lanewise
