// The values that travel on edges: Sample, Batch, Prediction, Gradient, Reduced, Weights. Nothing else does.
//
//   source -> Sample -> pair -> Batch -> compute -> Gradient -> allreduce -> Reduced -> optimizer -> Weights -> compute
//                                              \-> Prediction -> score, predictions
//
// Tensors on edges are in host memory and in the run's dtype (integer targets: int64) and are not changed once emitted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/error.h"
#include "graph/signature.h"

namespace lanewise {

// Elements of a tensor of this shape. Throws Error(kPipeline) when they are more than any memory holds.
inline std::int64_t element_count(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (__builtin_mul_overflow(count, length, &count) || count > kMost) {
      throw Error(Exit::kPipeline, "a tensor of " + to_string(shape) + " is larger than any memory");
    }
  }
  return count;
}

// The states of the nodes that a sample came through, each just before it took this very sample: where a resumed run
// begins again (runtime/cursor.h). Newest first.
struct ChainRecord {
  std::string node;
  nlohmann::json state;
  std::shared_ptr<const ChainRecord> above;  // of the node before
};

// Who a sample is. A filler is a row of an ended stream that only keeps its lane going (weight 0, touches no state).
struct Tag {
  int stream = 0;                    // index into StreamTable
  std::uint64_t run = 0;             // a restart raises it
  std::uint64_t seq = 0;             // counts what the stream's packets carry on this edge, over the whole training
  std::optional<std::int64_t> time;  // nanoseconds, since 1970 where the source knows the date
  bool start = false;                // first sample of its run, or after a gap in time: its stream's state begins anew
  bool filler = false;
  bool ended = false;  // its stream has given all that was asked; a round whose rows all have ended does not count
  double weight = 1;   // of its loss, in [0, 1]
  std::shared_ptr<const ChainRecord> record;  // every so often
};

struct Sample {
  at::Tensor x, y;  // without a batch axis; y has rank >= 1
  at::Tensor
      known;  // like y: the last valid target known when y had to be forecast; undefined: none, or not evaluating
  Tag tag;
};

// The rows of one lane, or of fused ones, in one round: k time steps of n streams, row i of step t being stream i of
// the lane.
struct Batch {
  at::Tensor x, y;        // [k, n, …]
  at::Tensor known;       // [k, n, …] like y, NaN where unknown; undefined: not evaluating
  std::vector<Tag> rows;  // k * n, time-major
  bool cut = false;    // a stream under on_end `first` has ended: no batch; x and y are undefined, rows are left over
  std::string cut_by;  // then: that stream's id
};

// What a lane computed, before the reduction. The numbers are in the lane's bucket (runtime/replica.h).
struct Gradient {
  int lane = 0;
  std::uint64_t round = 0;
  std::shared_ptr<const Batch> batch;  // that it is of
  std::vector<int> non_finite = {};    // where it is not finite, the parts of a fused lane to blame; empty: any may be
};

struct Prediction {
  int lane = 0;
  std::uint64_t round = 0;
  std::uint64_t step = 0;  // applied to the weights that predicted
  at::Tensor prediction;   // [k, n, …] of the model
  std::shared_ptr<const Batch> batch;
  std::vector<double> losses;  // per row r_r, before weighting; 0 for rows of weight 0
};

// What the optimizer decides from: the rounds of its step up to this one. The gradient itself is in
// Replicas::reduced(), once the step is complete.
struct Reduced {
  std::uint64_t round = 0;
  bool known = true;           // what comes below; false: it is still on its way from the devices (runtime/devices)
  bool complete = true;        // the step's last round, or the one that drops it under `skip`
  double n = 0;                // sum of row weights over all lanes
  std::optional<double> loss;  // sum of w * r over all rows / n; nullopt when n is 0
  std::vector<std::optional<double>> lanes;    // per lane, its own mean; each of those that are fused
  std::vector<std::optional<double>> streams;  // per stream, its own mean
  std::vector<Gradient> gradients;             // by lane, of this round
  std::vector<int> non_finite;                 // lanes, fused ones as one, whose loss or gradient is not finite
  bool all_ended = false;                      // every stream has given all that was asked
  bool cut = false;                            // a lane has no batch: a stream under on_end `first` has ended
  bool stop = false;                           // a lane was asked to stop after this step
  std::optional<double> grad_norm;             // of the gradient before it was clipped; nullopt: not worked out yet
};

// One applied step, as metrics.jsonl tells it.
struct StepRecord {
  std::uint64_t step = 0;  // from 1
  std::optional<double> loss;
  std::vector<std::optional<double>> lanes, streams;
  double n = 0, lr = 0, grad_norm = 0;
};

// Those that became known at once, oldest first: one, or two where the first was told late (runtime/devices).
using StepRecords = std::vector<StepRecord>;

// New weights are in every memory domain. The token that lets the next round start.
struct Weights {
  std::uint64_t step = 0;   // applied so far
  std::uint64_t round = 0;  // the one that they are for, from 0
};

}  // namespace lanewise
