// A DeviceLane is what a lane has on its GPU: a queue of work, two slots that batches are staged through, and the
// recurrent state of its streams.
//
//   batch -> slot in host memory -> (copy queue) -> slot on the device -> forward, loss, backward -> bucket
//
// The host writes a slot while the device works on the other one, and waits only for a slot that is still in use.
// Rounds that are all alike, every row counting and no sequence beginning within, are recorded once and replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
             const Dropout& dropout);
  ~DeviceLane();

  // Before the first round.
  // `outputs`: values of a prediction.
  void compare_by(LossType loss, double delta, std::int64_t outputs);

  // Issues a round: the bucket then holds the gradient and the tail, but for the flag of what is not finite. By one
  // thread at a time. `predicts`: result() will be asked for.
  void train(std::shared_ptr<const Batch> batch, bool stop, bool predicts);
  // Of an evaluation, whose state is in `recurrent`. Waits for the device, as result() does.
  struct Result {
    at::Tensor prediction;       // [k, n, …], on the host
    std::vector<double> losses;  // a row each; 0 where the weight is
  };
  Result predict(const Batch& batch, RecurrentState& recurrent);
  // Of the last train().
  Result result();

  // Within a queue's run(): keeps what the streams have left since the last time, or, where the flag `held` is 1, goes
  // back; a stream that began a sequence meanwhile then begins with zeros.
  void settle_state(const at::Tensor& held);

  DeviceQueue& queue() { return *queue_; }
  int lane() const { return lane_; }

  // While nothing is under way: the state of the last settle_state(), by stream.
  void save_state(RecurrentState& recurrent) const;
  void load_state(const RecurrentState& recurrent);

  // Rounds that were issued.
  std::uint64_t rounds() const { return rounds_; }
  // Rounds that were replayed; why none can be, if so.
  std::uint64_t replays() const { return replays_; }
  const std::string& unrecorded() const { return unrecorded_; }

 private:
  struct Slot;
  void make_slots(const Batch& batch);
  void stage(Slot& slot, const Batch& batch, bool stop);
  bool is_plain(const Batch& batch) const;
  // Queue's work. train_plain() reads nothing but what stays where it is.
  void train_plain(Slot& slot, const Pass& pass);
  void train_any(Slot& slot, const Batch& batch, std::span<const std::uint64_t> runs);
  void write_tail(Slot& slot, const at::Tensor& losses);
  void keep_state(const Slot& slot, const at::Tensor& state);
  void issue_plain(Slot& slot, const std::shared_ptr<const Batch>& batch);

  Replicas& replicas_;
  const int lane_;
  const std::vector<int> streams_;
  const bool carries_;
  const Dropout& dropout_;
  LossType loss_;
  double delta_ = 1;
  std::int64_t outputs_ = 0;
  const at::Device device_;
  Accelerator& accelerator_;
  at::Tensor loss_at_, weight_at_;   // places in the bucket of each row's stream, [n]
  at::Tensor state_, kept_, begun_;  // [n, state_size()]; begun since kept_: [n, 1]
  std::vector<std::uint64_t> runs_;  // that have left the states
  std::array<std::unique_ptr<Slot>, 2> slots_;
  std::uint64_t rounds_ = 0, plain_rounds_ = 0, replays_ = 0;
  std::string unrecorded_;
  Slot* newest_ = nullptr;
  std::unique_ptr<DeviceQueue> copies_, queue_;  // last: their work uses the others
};

}  // namespace lanewise
