// A Communicator adds up the lanes' buckets. One interface, several insides, one conformance suite.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/replica.h"

namespace lanewise {

// Where a round stands in its step, a step of one round being both first and last, and in the training, from 0.
struct RoundOfStep {
  bool first = true, last = true;
  std::uint64_t number = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  // One round of a step. For every element of the parameter part: reduced = (1/N) · Σ_rounds Σ_d bucket_d, N being the
  // sum of all row weights in the tails; of the tail: Σ_rounds Σ_d. The result is written to each domain's `reduced`,
  // the parameter part only in the step's last round. N = 0: the parameter part is zero. In `reference`, lanes are
  // added in lane order in double and rounds in their order in double, multiplied by 1/N in double, and rounded once,
  // so the bits depend neither on threads nor on the placement of lanes; `deterministic` and `fast` add
  // what each process's lanes add up to, as the library does. Returns N so far.
  virtual double reduce(Replicas& replicas, RoundOfStep round = {}) = 0;

  // What the sums go through, for the report: "memory", "shared memory", "gloo"; "" before the first reduce().
  virtual const char* through() const { return "memory"; }

  // Compares all copies of the weights, here and in other processes. Throws Error(kDevice) saying which differ.
  void verify(const Replicas& replicas);
  // Where the weights of other processes differ: "bias of rank 2 (lane2) differs from that of rank 0 (lane0)". By all
  // processes together.
  virtual std::string apart(const Replicas&) { return ""; }
};

// All lanes in this process: every reduction is `reference`.
std::unique_ptr<Communicator> make_local_communicator();

}  // namespace lanewise
