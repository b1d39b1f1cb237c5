#include "runtime/lane_sum.h"

#include <ATen/ATen.h>

#include <cstring>

#include "runtime/loops.h"

namespace lanewise {
namespace {

// Row weights of all streams in a bucket or a sum of buckets.
template <class T>
double weight_of(const BucketLayout& layout, const T* bucket) {
  double n = 0;
  for (int stream = 0; stream < layout.streams; ++stream) n += bucket[layout.weight_at(stream)];
  return n;
}

// One round that is the whole step.
template <class T>
double reduce_one_round(std::span<const T* const> lanes, const BucketLayout& layout, T* out) {
  add_lanes<T>(lanes, layout.parameters, layout.size(), 1, out);
  const double n = weight_of(layout, out);
  if (n == 0) {
    std::fill_n(out, layout.parameters, T{0});
  } else {
    add_lanes<T>(lanes, 0, layout.parameters, 1 / n, out);
  }
  return n;
}

// Adds the round to the step's `sums`.
template <class T>
double reduce_rounds(std::span<const T* const> lanes, const BucketLayout& layout, std::vector<double>& sums,
                     RoundOfStep round, T* out) {
  if (round.first) sums.assign(static_cast<std::size_t>(layout.size()), 0.0);
  for (std::int64_t i = 0; i < layout.size(); ++i) {
    double sum = 0;
    for (const T* const lane : lanes) sum += lane[i];
    sums[i] += sum;
  }
  const double n = weight_of(layout, sums.data()), scale = n == 0 ? 0 : 1 / n;
  for (std::int64_t i = round.last ? 0 : layout.parameters; i < layout.size(); ++i) {
    out[i] = static_cast<T>(i < layout.parameters ? sums[i] * scale : sums[i]);
  }
  return n;
}

}  // namespace

template <class T>
void add_lanes(std::span<const T* const> lanes, std::int64_t begin, std::int64_t end, double scale, T* out) {
  loops<T>().add_lanes(lanes.data(), static_cast<std::int64_t>(lanes.size()), begin, end, scale, out);
}

template <class T>
double LaneSum::add(std::span<const T* const> lanes, const BucketLayout& layout, RoundOfStep round, T* out) {
  return round.first && round.last ? reduce_one_round<T>(lanes, layout, out)
                                   : reduce_rounds<T>(lanes, layout, sums_, round, out);
}

template <class T>
double LaneSum::reduce(std::span<const T* const> lanes, Replicas& replicas, RoundOfStep round) {
  const at::Tensor& reduced = replicas.reduced(0);
  const double n = add<T>(lanes, replicas.layout(), round, reduced.data_ptr<T>());
  for (int domain = 1; domain < replicas.domain_count(); ++domain) {
    std::memcpy(replicas.reduced(domain).mutable_data_ptr(), reduced.const_data_ptr(), reduced.nbytes());
  }
  return n;
}

template double LaneSum::reduce<float>(std::span<const float* const>, Replicas&, RoundOfStep);
template double LaneSum::reduce<double>(std::span<const double* const>, Replicas&, RoundOfStep);
template double LaneSum::add<float>(std::span<const float* const>, const BucketLayout&, RoundOfStep, float*);
template double LaneSum::add<double>(std::span<const double* const>, const BucketLayout&, RoundOfStep, double*);
template void add_lanes<float>(std::span<const float* const>, std::int64_t, std::int64_t, double, float*);
template void add_lanes<double>(std::span<const double* const>, std::int64_t, std::int64_t, double, double*);

}  // namespace lanewise
