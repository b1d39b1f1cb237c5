// Replicas whose buckets hold known numbers, and what their reduction is, for tests of communicators.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/random.h"
#include "runtime/replica.h"
#include "tests/runtime/models.h"

namespace lanewise {

constexpr int kBucketSeed = 11;

inline void refill(Replicas& r, int round) {
  for (int lane = r.first_lane(); lane < r.first_lane() + r.lane_count(); ++lane) {
    Random random(kBucketSeed, "test", fmt::format("lane{} {}", lane, round));
    std::vector<double> values(r.layout().size());
    for (std::int64_t i = 0; i < r.layout().parameters; ++i) {
      values[i] = random.normal() * std::exp(8 * random.normal());
    }
    for (int stream = 2 * lane; stream < 2 * lane + 2; ++stream) {
      values[r.layout().loss_at(stream)] = random.uniform();
      values[r.layout().weight_at(stream)] = stream % 3 == 0 ? 0.5 : 1;
    }
    values[r.layout().flag_at(lane, Flag::kStop)] = lane % 2;
    r.bucket(lane).copy_(at::tensor(values, at::kDouble));
  }
}

// Lanes of two streams each, over a linear model of `width` inputs; buckets filled with wide-ranging random numbers and
// weights that are not all one. `own`: those that are here; `devices`: of the domains.
inline Replicas filled(int lanes, at::ScalarType dtype, std::int64_t width, bool per_device = false,
                       std::optional<LaneRange> own = std::nullopt, int round = 0,
                       std::vector<at::Device> devices = {}) {
  Replicas r([&] { return model_type("linear").make(nlohmann::json::object(), {width}, {1}); }, "net",
             {.dtype = dtype,
              .domains = domains(per_device, own ? own->count() : lanes),
              .devices = std::move(devices),
              .lanes = lanes,
              .streams = 2 * lanes,
              .own = own});
  refill(r, round);
  return r;
}

// What reduce() promises of a step of these rounds, element by element; in double.
struct Right {
  std::vector<double> values;
  double n = 0;
};
inline Right right_sum(int lanes, at::ScalarType dtype, std::int64_t width, int rounds) {
  Right right;
  for (int round = 0; round < rounds; ++round) {
    Replicas r = filled(lanes, dtype, width, false, std::nullopt, round);
    right.values.resize(r.layout().size());
    std::vector<double> sums(r.layout().size());
    for (int lane = 0; lane < lanes; ++lane) {
      const at::Tensor bucket = r.bucket(lane).to(at::kDouble);
      for (std::int64_t i = 0; i < r.layout().size(); ++i) sums[i] += bucket.const_data_ptr<double>()[i];
    }
    for (std::int64_t i = 0; i < r.layout().size(); ++i) right.values[i] += sums[i];
    for (int s = 0; s < 2 * lanes; ++s) right.n += s % 3 == 0 ? 0.5 : 1;
    if (round + 1 < rounds) continue;
    for (std::int64_t i = 0; i < r.layout().parameters; ++i) right.values[i] *= 1 / right.n;
  }
  return right;
}

// Reduces these rounds of replicas with a domain a lane; "" when every domain then holds what is right, in its own
// bits.
inline std::string wrong_after(Communicator& communicator, Replicas& r, const Right& right, int rounds) {
  double n = 0;
  for (int round = 0; round < rounds; ++round) {
    refill(r, round);
    n = communicator.reduce(r, {.first = round == 0, .last = round + 1 == rounds});
  }
  const at::Tensor same = at::tensor(right.values, at::kDouble).to(r.weights(0).scalar_type());
  bool equal = n == right.n;
  for (int d = 0; d < r.domain_count(); ++d) equal = equal && at::equal(r.reduced(d).cpu(), same);
  return equal ? "" : "other bits";
}

}  // namespace lanewise
