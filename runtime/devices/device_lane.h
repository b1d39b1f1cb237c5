// A DeviceLane is what a lane has on its GPU: a queue of work, two slots that batches are staged through, and the
// recurrent state of its streams.
//
//   batch -> slot in host memory -> (copy queue) -> slot on the device -> forward, loss, backward -> bucket
//
// The host writes a slot while the device works on the other one, and waits only for a slot that is still in use.
// Rounds that are all alike, every row counting and no sequence beginning within, are recorded once and replayed. A
// lane whose gradients are reduced in parts is not recorded: a replay would tell of no part before its end.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/devices/gradient_watch.h"
#include "runtime/devices/queue.h"
#include "runtime/dropout.h"
#include "runtime/loss.h"
#include "runtime/recurrent_state.h"
#include "runtime/replica.h"
#include "runtime/values.h"

namespace lanewise {

class DeviceLane {
 public:
  // `streams`: of the lane's rows, by index. `carries`: the state goes on from batch to batch.
  DeviceLane(Accelerator& accelerator, int gpu, Replicas& replicas, int lane, std::vector<int> streams, bool carries,
             const Dropout& dropout, std::chrono::milliseconds timeout);
  ~DeviceLane();

  // Before the first round: by what train() compares. `outputs`: values of a prediction.
  void compare_by(LossType loss, double delta, std::int64_t outputs);

  // Before the first round: all parts but the last are handed over, in their order and by any thread, when their
  // gradients are complete at `point` in queue().
  using HandOver = std::function<void(int part, std::uint64_t round, const QueuePoint& point)>;
  void reduce_in_parts(const std::vector<BucketPart>& parts, HandOver hand_over);
  // Returns when those of the last train() have been handed over: at once on a GPU, where this is a part of issuing.
  void wait_for_parts();
  // The same where a run has failed: for some seconds, and without a word.
  void wait_for_parts_in_vain() noexcept;

  // Issues a round, `number` in messages: the bucket then holds the gradient and the tail, but for the flag of what is
  // not finite. By one thread at a time. `predicts`: result() will be asked for. Waits where the device is two rounds
  // behind; throws Error(kDevice) when it does not come on.
  void train(std::shared_ptr<const Batch> batch, std::uint64_t number, bool stop, bool predicts);
  // Of an evaluation, whose state is in `recurrent`, and which compares by a loss of its own. Waits for the device, as
  // result() does.
  struct Result {
    at::Tensor prediction;       // [k, n, …], on the host
    std::vector<double> losses;  // a row each; 0 where the weight is
  };
  Result predict(const Batch& batch, RecurrentState& recurrent, const LossType& loss, double delta);
  // Of the last train().
  Result result();

  // Within a queue's run(): keeps what the streams have left since the last time, or, where the flag `held` is 1, goes
  // back; a stream that began a sequence meanwhile then begins with zeros.
  void settle_state(const at::Tensor& held);

  DeviceQueue& queue() { return *queue_; }
  // Returns when all that was issued is done. Throws Error(kDevice) when that takes too long.
  void wait() { wait_for_all(*queue_, patience_); }
  int lane() const { return lane_; }

  // While nothing is under way: the state of the last settle_state(), by stream.
  void save_state(RecurrentState& recurrent) const;
  void load_state(const RecurrentState& recurrent);

  // Rounds that were issued, and those of them that are done; while nothing is issued.
  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t rounds_done();
  // Parts that were handed over while the backward went on; while nothing is under way.
  std::uint64_t early_parts() const { return watch_ != nullptr ? watch_->early() : 0; }
  // Rounds that were replayed; why none can be, if so.
  std::uint64_t replays() const { return replays_; }
  const std::string& unrecorded() const { return unrecorded_; }

 private:
  // Whether the last round's parts are handed over in that time; throws what the lane's work threw.
  bool parts_come(std::chrono::milliseconds timeout);
  struct Slot;
  void make_slots(const Batch& batch);
  void stage(Slot& slot, const Batch& batch, bool stop);
  bool is_plain(const Batch& batch) const;
  // Work of a round.
  void run(std::uint64_t number, std::function<void()> work);
  // Queue's work. train_plain() reads nothing but what stays where it is.
  void train_plain(Slot& slot, const Pass& pass);
  void train_any(Slot& slot, const Batch& batch, std::span<const std::uint64_t> runs);
  void write_tail(Slot& slot, const at::Tensor& losses);
  void keep_state(const Slot& slot, const at::Tensor& state);
  void issue_plain(Slot& slot, const std::shared_ptr<const Batch>& batch, std::uint64_t number);

  Replicas& replicas_;
  const int lane_;
  const std::vector<int> streams_;
  const bool carries_;
  const Dropout& dropout_;
  LossType loss_;
  double delta_ = 1;
  std::int64_t outputs_ = 0;
  const int gpu_;
  const at::Device device_;
  Accelerator& accelerator_;
  at::Tensor loss_at_, weight_at_;   // places in the bucket of each row's stream, [n]
  at::Tensor state_, kept_, begun_;  // [n, state_size()]; begun since kept_: [n, 1]
  std::vector<std::uint64_t> runs_;  // that have left the states
  std::array<std::unique_ptr<Slot>, 2> slots_;
  std::uint64_t rounds_ = 0, plain_rounds_ = 0, replays_ = 0;
  std::string unrecorded_;
  Slot* newest_ = nullptr;
  const Patience patience_;
  std::unique_ptr<GradientWatch> watch_;             // null: the bucket is reduced as a whole
  std::vector<std::unique_ptr<QueuePoint>> points_;  // by part
  std::uint64_t number_ = 0;                         // of the round that is watched
  std::atomic<std::uint64_t> handed_over_ = 0;       // rounds whose parts were
  std::unique_ptr<DeviceQueue> copies_, queue_;      // last: their work uses the others
};

}  // namespace lanewise
