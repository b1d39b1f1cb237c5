// The sum over lanes that every reduction ends in, on the host.
#pragma once

#include <span>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/replica.h"

namespace lanewise {

class LaneSum {
 public:
  // What Communicator::reduce does, for these buckets: added in their order, in double, and rounded once, to every
  // domain's `reduced`. T: the weights' type. Returns N so far.
  template <class T>
  double reduce(std::span<const T* const> lanes, Replicas& replicas, RoundOfStep round);
  // The same to `out`, a whole bucket.
  template <class T>
  double add(std::span<const T* const> lanes, const BucketLayout& layout, RoundOfStep round, T* out);

 private:
  std::vector<double> sums_;  // of the step's rounds so far, a whole bucket; empty while steps have one round
};

// The buckets of this process's lanes, in their order.
template <class T>
std::vector<const T*> buckets(Replicas& replicas) {
  std::vector<const T*> lanes;
  for (int i = 0; i < replicas.lane_count(); ++i) {
    lanes.push_back(replicas.bucket(replicas.first_lane() + i).template const_data_ptr<T>());
  }
  return lanes;
}

// out[i] = scale · Σ_d lanes[d][i] for i in [begin, end), added in double.
template <class T>
void add_lanes(std::span<const T* const> lanes, std::int64_t begin, std::int64_t end, double scale, T* out);

}  // namespace lanewise
