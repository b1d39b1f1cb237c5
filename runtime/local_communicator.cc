// The communicator for lanes of one process: buckets are added in lane order, in double, and rounded once.
#include <ATen/ATen.h>

#include <cstring>

#include "runtime/communicator.h"

namespace lanewise {
namespace {

constexpr std::int64_t kChunk = 4;  // elements whose sums stay in vector registers

// out[i] = scale · Σ_d lanes[d][i] for i in [begin, end).
template <class T>
void add_lanes(std::span<const T* const> lanes, std::int64_t begin, std::int64_t end, double scale, T* out) {
  std::int64_t i = begin;
  for (; i + kChunk <= end; i += kChunk) {
    double sums[kChunk] = {};
    for (const T* const lane : lanes) {
      for (std::int64_t j = 0; j < kChunk; ++j) sums[j] += lane[i + j];
    }
    for (std::int64_t j = 0; j < kChunk; ++j) out[i + j] = static_cast<T>(sums[j] * scale);
  }
  for (; i < end; ++i) {
    double sum = 0;
    for (const T* const lane : lanes) sum += lane[i];
    out[i] = static_cast<T>(sum * scale);
  }
}

template <class T>
std::vector<const T*> buckets(Replicas& replicas) {
  std::vector<const T*> lanes;
  for (int lane = 0; lane < replicas.lane_count(); ++lane) {
    lanes.push_back(replicas.bucket(lane).template const_data_ptr<T>());
  }
  return lanes;
}

// Row weights of all streams in a bucket or a sum of buckets.
template <class T>
double weight_of(const BucketLayout& layout, const T* bucket) {
  double n = 0;
  for (int stream = 0; stream < layout.streams; ++stream) n += bucket[layout.weight_at(stream)];
  return n;
}

template <class T>
double reduce_one_round(Replicas& replicas) {
  const std::vector<const T*> lanes = buckets<T>(replicas);
  const BucketLayout& layout = replicas.layout();
  T* const out = replicas.reduced(0).template data_ptr<T>();
  add_lanes<T>(lanes, layout.parameters, layout.size, 1, out);
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
double reduce_rounds(Replicas& replicas, std::vector<double>& sums, RoundOfStep round) {
  const std::vector<const T*> lanes = buckets<T>(replicas);
  const BucketLayout& layout = replicas.layout();
  if (round.first) sums.assign(static_cast<std::size_t>(layout.size), 0.0);
  for (std::int64_t i = 0; i < layout.size; ++i) {
    double sum = 0;
    for (const T* const lane : lanes) sum += lane[i];
    sums[i] += sum;
  }
  T* const out = replicas.reduced(0).template data_ptr<T>();
  const double n = weight_of(layout, sums.data()), scale = n == 0 ? 0 : 1 / n;
  for (std::int64_t i = round.last ? 0 : layout.parameters; i < layout.size; ++i) {
    out[i] = static_cast<T>(i < layout.parameters ? sums[i] * scale : sums[i]);
  }
  return n;
}

class LocalCommunicator final : public Communicator {
 public:
  double reduce(Replicas& replicas, RoundOfStep round) override {
    const bool doubles = replicas.weights(0).scalar_type() == at::kDouble;
    double n = 0;
    if (round.first && round.last) {
      n = doubles ? reduce_one_round<double>(replicas) : reduce_one_round<float>(replicas);
    } else {
      n = doubles ? reduce_rounds<double>(replicas, sums_, round) : reduce_rounds<float>(replicas, sums_, round);
    }
    const at::Tensor& from = replicas.reduced(0);
    for (int domain = 1; domain < replicas.domain_count(); ++domain) {
      std::memcpy(replicas.reduced(domain).mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    }
    return n;
  }

 private:
  std::vector<double> sums_;  // of the step's rounds so far, a whole bucket; empty while steps have one round
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator() { return std::make_unique<LocalCommunicator>(); }

}  // namespace lanewise
