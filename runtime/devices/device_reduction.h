// The reduction between lanes on GPUs: a pass over the buckets of each GPU's lanes, NCCL between GPUs, and a pass that
// divides by N and decides whether the device holds the step back.
//
//   one GPU                 lanes' buckets ─────────────── pass ──────────────> reduced
//   several, `reference`    each bucket ─> its row ─> NCCL ─> pass, in lane order ─> reduced
//   several, else           lanes' buckets ─ pass ─> sum ─> NCCL ─> pass ─> reduced
//
// Rows of other ranks' lanes are zero, so that NCCL's sum is a gather, and `reference` has the bits of the host's
// reduction. NCCL is between ranks, a GPU each, of all processes. Not verified on a GPU.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/devices/queue.h"
#include "runtime/world.h"

namespace lanewise {

class NcclRanks;

// What a round came to, the step's rounds before it included.
struct RoundOutcome {
  double n = 0, norm = 0;
  std::vector<double> tail;  // of the bucket
};

struct DeviceReductionOptions {
  std::string mode = "deterministic";             // reference, deterministic, fast
  bool votes = true;                              // what is not finite holds a step back
  bool accumulates = false;                       // steps may have several rounds
  bool through_nccl = false;                      // also where one GPU has all lanes
  std::chrono::milliseconds peer_timeout{60000};  // that other ranks may be late
};

class DeviceReduction final : public Communicator {
 public:
  // `gpus`: of each memory domain. Waits until all ranks have come. Throws Error(kDevice) or Error(kPeer).
  DeviceReduction(World& world, Replicas& replicas, Accelerator& accelerator, std::vector<int> gpus,
                  const DeviceReductionOptions& options);
  ~DeviceReduction() override;

  // Issues a round to the domains' queues, which begins after all that these were given before.
  void issue(RoundOfStep round);
  // Of the oldest round that was not asked for; two may be under way. Waits, with a deadline where other ranks take
  // part; throws Error(kPeer) with what each rank did last.
  RoundOutcome outcome();
  // Both.
  double reduce(Replicas& replicas, RoundOfStep round = {}) override;
  const char* through() const override;
  std::string apart(const Replicas& replicas) override;

  int domain_count() const { return static_cast<int>(domains_.size()); }
  DeviceQueue& queue(int domain);
  // On the domain's device, as the queue has them after the round. holds: [2], 1 where the weights, and the streams'
  // states, stay as they are; norm: a double.
  const at::Tensor& holds(int domain) const;
  at::Tensor norm(int domain) const;

 private:
  struct Domain;
  struct Pending {
    std::uint64_t mark, number;
    std::vector<std::uint64_t> own_work;  // marks before NCCL's
  };
  void issue_sum(Domain& domain);
  BucketPass pass_over(const Domain& domain) const;

  World& world_;
  Replicas& replicas_;
  const DeviceReductionOptions options_;
  std::vector<std::unique_ptr<Domain>> domains_;
  std::unique_ptr<NcclRanks> ranks_;  // null: one GPU has all lanes
  std::deque<Pending> pending_;
  std::uint64_t issued_ = 0;
};

}  // namespace lanewise
