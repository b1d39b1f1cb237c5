// The reduction between lanes on GPUs: a pass over the buckets of each GPU's lanes, NCCL between GPUs, and a pass that
// divides by N and decides whether the device holds the step back.
//
//   one GPU                 lanes' buckets ─────────────── pass ──────────────> reduced
//   several, `reference`    each bucket ─> its row ─> NCCL ─> pass, in lane order ─> reduced
//   several, else           lanes' buckets ─ pass ─> sum ─> NCCL ─> pass ─> reduced
//
// The last of these takes large models in parts (runtime/devices/bucket_parts.h): pass and NCCL for a part begin when
// every lane here has handed it over, while the backward goes on. The other pass comes when all parts are there, so
// that N, the norm and what is not finite are those of the whole. Parts are a function of the plan, and so are the
// bits; where a library adds up elements without regard to where they lie in a message, they are those of one
// collective.
//
// Rows of other ranks' lanes are zero, so that NCCL's sum is a gather, and `reference` has the bits of the host's
// reduction. NCCL is between ranks, a GPU each, of all processes. Not verified on a GPU.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/devices/queue.h"
#include "runtime/nccl/sum.h"
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
  std::chrono::milliseconds peer_timeout{60000};  // that other ranks, or a GPU here, may be late
  std::int64_t part_bytes = kPartBytes;           // a larger model is reduced in parts, but in `reference`
};

class DeviceReduction final : public Communicator {
 public:
  // `gpus`: of each memory domain. Waits until all ranks have come. Throws Error(kDevice) or Error(kPeer).
  DeviceReduction(World& world, Replicas& replicas, Accelerator& accelerator, std::vector<int> gpus,
                  const DeviceReductionOptions& options);
  ~DeviceReduction() override;

  // All but the last may be handed over before issue().
  const std::vector<BucketPart>& parts() const { return parts_; }
  // The lane's gradients of this part are complete when its queue comes to `point`. By any thread, in the parts' order,
  // and for every lane before wait_for_parts() and issue().
  void hand_over(int lane, int part, std::uint64_t round, const QueuePoint& point);
  // Returns when the parts that were handed over are issued. Throws Error(kPeer) when that has failed.
  void wait_for_parts();

  // Issues a round, or the rest of one, to the domains' queues, which begins after all that these were given before.
  void issue(RoundOfStep round);
  // Of the oldest round that was not asked for; two may be under way. Waits, with a deadline: throws Error(kDevice)
  // where a GPU here is late, and Error(kPeer) with what each rank did last where another one is.
  RoundOutcome outcome();
  // Both.
  double reduce(Replicas& replicas, RoundOfStep round = {}) override;
  const char* through() const override;
  std::string apart(const Replicas& replicas) override;

  // Returns when all that was issued is done. Throws Error(kDevice) when that takes too long.
  void wait();

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
    std::vector<std::vector<std::uint64_t>> own_work;  // marks before NCCL's, by part and domain
  };
  NcclSum sum_of(int part, std::uint64_t round) const;
  // By the thread that issues to NCCL.
  void issue_part(int part);
  void issue_sum(Domain& domain, const BucketPart& part);
  BucketPass pass_over(const Domain& domain) const;

  World& world_;
  Replicas& replicas_;
  const DeviceReductionOptions options_;
  std::vector<std::unique_ptr<Domain>> domains_;
  std::vector<BucketPart> parts_;
  std::unique_ptr<NcclRanks> ranks_;                                         // null: one GPU has all lanes
  std::mutex mutex_;                                                         // guards handed_over_
  std::vector<std::vector<std::pair<int, const QueuePoint*>>> handed_over_;  // by part: lanes
  std::vector<std::vector<std::uint64_t>> own_work_;  // of the round that is being issued, by the thread that does
  std::deque<Pending> pending_;
  std::uint64_t issued_ = 0;
};

}  // namespace lanewise
