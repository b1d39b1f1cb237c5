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
double reduce_reference(Replicas& replicas) {
  std::vector<const T*> lanes;
  for (int lane = 0; lane < replicas.lane_count(); ++lane) {
    lanes.push_back(replicas.bucket(lane).template const_data_ptr<T>());
  }
  const BucketLayout& layout = replicas.layout();
  T* const out = replicas.reduced(0).template data_ptr<T>();
  add_lanes<T>(lanes, layout.parameters, layout.size, 1, out);
  double n = 0;
  for (int stream = 0; stream < layout.streams; ++stream) n += out[layout.weight_at(stream)];
  if (n == 0) {
    std::fill_n(out, layout.parameters, T{0});
  } else {
    add_lanes<T>(lanes, 0, layout.parameters, 1 / n, out);
  }
  for (int domain = 1; domain < replicas.domain_count(); ++domain) {
    std::memcpy(replicas.reduced(domain).mutable_data_ptr(), out, layout.size * sizeof(T));
  }
  return n;
}

class LocalCommunicator final : public Communicator {
 public:
  std::string name() const override { return "local"; }

  double reduce(Replicas& replicas) override {
    return replicas.weights(0).scalar_type() == at::kDouble ? reduce_reference<double>(replicas)
                                                            : reduce_reference<float>(replicas);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator() { return std::make_unique<LocalCommunicator>(); }

}  // namespace lanewise
