// The one pass over the buckets of a memory domain's lanes: what the reduction does on a device, as data.
//
//   out[i] = Σ_j inputs[j][i]                          in input order, in double, rounded once; or
//   out[i] = (1/N) · Σ_rounds Σ_j inputs[j][i]         of the parameters, of a step's last round, where it divides
//
// together with which inputs are not finite, N, the norm of the result, and whether the step is held back. A pass that
// does not divide may go over a part of the bucket; the one with the tail is the last then, and tells what was not
// finite in any of them. On a GPU it is runtime/cuda/bucket_pass.cu (not verified on a GPU); run_bucket_pass() is the
// same on the host, and what it is tested against.
#pragma once

#include <cstdint>

#include "runtime/bucket_places.h"

namespace lanewise {

// Where a reduced round stands, in doubles.
enum Outcome { kOutcomeN, kOutcomeNorm, kOutcomeCount };

// Plain data, so that a library compiled by another compiler can take it. Pointers are to the device's memory.
struct BucketPass {
  bool is_double = false;  // elements are float64, else float32
  BucketPlaces places;
  std::int64_t begin = 0, end = 0;  // of the parameters, [begin, end); all where it divides
  bool tail = true;                 // and the tail

  const void* const* inputs = nullptr;  // whole buckets
  const int* lane_of = nullptr;         // whose bucket an input is; null: inputs were checked before
  int input_count = 0;

  void* out = nullptr;     // a whole bucket; none of the inputs
  double* sums = nullptr;  // of the step's rounds so far, a whole bucket; null: a step has one round
  bool first = true, last = true;
  bool divides = true;        // by N; `outcome` and `holds` are written then only
  bool votes = true;          // what is not finite holds the step back
  double* outcome = nullptr;  // [kOutcomeCount]
  float* holds = nullptr;     // [2], 1 or 0: the weights stay as they are; the streams' states, too
  void* workspace = nullptr;  // bucket_pass_workspace() bytes, zero at first
};

// Blocks that share the work; by the layout alone, so that the order of every sum is fixed.
constexpr int bucket_pass_blocks(std::int64_t parameters) {
  constexpr std::int64_t kElements = 1024;  // of a block, at least
  constexpr std::int64_t kMostBlocks = 1024;
  const std::int64_t blocks = (parameters + kElements - 1) / kElements;
  return static_cast<int>(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}

// A counter of finished blocks, a partial sum a block, a flag an input: not finite, in this or an earlier part.
constexpr std::int64_t bucket_pass_flags_at(std::int64_t parameters) {
  return 8 + 8 * static_cast<std::int64_t>(bucket_pass_blocks(parameters));
}
constexpr std::int64_t bucket_pass_workspace(std::int64_t parameters, int input_count) {
  return bucket_pass_flags_at(parameters) + 4 * static_cast<std::int64_t>(input_count);
}

void run_bucket_pass(const BucketPass& pass);

}  // namespace lanewise
