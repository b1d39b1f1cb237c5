#include "runtime/devices/bucket_pass.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "runtime/finite.h"

namespace lanewise {
namespace {

template <class T>
void run(const BucketPass& pass) {
  const BucketPlaces& at = pass.places;
  const auto input = [&](int j) { return static_cast<const T*>(pass.inputs[j]); };
  T* const out = static_cast<T*>(pass.out);
  const auto total = [&](std::int64_t i) {
    double sum = 0;
    for (int j = 0; j < pass.input_count; ++j) sum += input(j)[i];
    return pass.sums != nullptr && !pass.first ? pass.sums[i] + sum : sum;
  };
  double n = 0;
  for (int s = 0; pass.divides && s < at.streams; ++s) n += total(at.weight_at(s));
  auto* const bad =
      reinterpret_cast<unsigned*>(static_cast<char*>(pass.workspace) + bucket_pass_flags_at(at.parameters));
  const double scale = !pass.divides ? 1 : n == 0 ? 0 : 1 / n;
  const auto add_up = [&](std::int64_t begin, std::int64_t end) {
    for (int j = 0; pass.lane_of != nullptr && j < pass.input_count; ++j) {
      for (std::int64_t i = begin; i < end; ++i) bad[j] |= std::isfinite(input(j)[i]) ? 0 : 1;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const double value = total(i);
      if (pass.sums != nullptr) pass.sums[i] = value;
      if (i >= at.parameters) {
        out[i] = static_cast<T>(value);
      } else if (!pass.divides || pass.last) {
        out[i] = pass.divides && n == 0 ? T{0} : static_cast<T>(value * scale);
      }
    }
  };
  add_up(pass.begin, pass.end);
  if (!pass.tail) return;
  add_up(at.parameters, at.size());
  for (int j = 0; pass.lane_of != nullptr && j < pass.input_count; ++j) {
    if (std::exchange(bad[j], 0) == 0) continue;
    const std::int64_t flag = at.flag_at(pass.lane_of[j], Flag::kNonFinite);
    out[flag] += 1;
    if (pass.sums != nullptr) pass.sums[flag] += 1;
  }
  if (!pass.divides) return;

  bool cut = false, ended = true, unfit = false;
  for (int lane = 0; lane < at.lanes; ++lane) {
    cut = cut || out[at.flag_at(lane, Flag::kCut)] != 0;
    ended = ended && out[at.flag_at(lane, Flag::kEnded)] != 0;
    unfit = unfit || out[at.flag_at(lane, Flag::kNonFinite)] != 0;
  }
  double norm = 0;
  if (pass.last && n != 0) {
    norm =
        lanewise::norm(at::from_blob(out, {at.parameters}, pass.is_double ? at::kDouble : at::kFloat), at.parameters);
  }
  const bool held = cut || ended || (pass.votes && (unfit || !std::isfinite(norm)));
  pass.outcome[kOutcomeN] = n;
  pass.outcome[kOutcomeNorm] = norm;
  pass.holds[0] = held || n == 0 ? 1 : 0;
  pass.holds[1] = held ? 1 : 0;
}

}  // namespace

void run_bucket_pass(const BucketPass& pass) { pass.is_double ? run<double>(pass) : run<float>(pass); }

}  // namespace lanewise
