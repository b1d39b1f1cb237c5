#include "runtime/devices/device_lane.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "graph/error.h"
#include "runtime/devices/switches.h"
#include "runtime/lane_forward.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

constexpr std::int64_t kAlignment = 64;       // bytes, of each part of a slot
constexpr std::uint64_t kRoundsToWarmUp = 3;  // before one is recorded: libraries choose and allocate in the first
constexpr auto kFlags = static_cast<std::int64_t>(Flag::kCount);

std::vector<std::uint64_t> last_runs(std::span<const Tag> rows, std::size_t streams) {
  std::vector<std::uint64_t> runs;
  for (const Tag& row : rows.last(streams)) runs.push_back(row.run);
  return runs;
}

}  // namespace

// One piece of host memory and its twin on the device, and the same tensors in both.
struct DeviceLane::Slot {
  struct Parts : RowsThere {  // its `counting` has room for all rows
    at::Tensor x, y;          // [k, n, …]
    at::Tensor weights;       // [k, n]
    at::Tensor flags;         // [kCount]
    at::Tensor begun;         // [n, 1]: the sequence begins somewhere
  };
  at::Tensor host_bytes, device_bytes;
  Parts host, device;
  std::uint64_t used_until = 0;  // a mark of the queue
  std::unique_ptr<Recording> recording;
  at::Tensor prediction, losses;  // of a round whose result() is asked for, on the device; a loss a row [k, n]
};

DeviceLane::DeviceLane(Accelerator& accelerator, int gpu, Replicas& replicas, int lane, std::vector<int> streams,
                       bool carries, const Dropout& dropout, std::chrono::milliseconds timeout)
    : replicas_(replicas),
      lane_(lane),
      streams_(std::move(streams)),
      carries_(carries && replicas.any_model().state_size() > 0),
      dropout_(dropout),
      gpu_(gpu),
      device_(accelerator.device(gpu)),
      accelerator_(accelerator),
      runs_(streams_.size()),
      unrecorded_(may_replay() ? replicas.any_model().unrecordable() : "LANEWISE_REPLAY is off"),
      patience_{fmt::format("lane{} on cuda:{}", lane, gpu), timeout},
      copies_(accelerator.make_queue(gpu)),
      queue_(accelerator.make_queue(gpu)) {
  std::vector<std::int64_t> losses, weights;
  for (const int s : streams_) {
    losses.push_back(replicas.layout().loss_at(s));
    weights.push_back(replicas.layout().weight_at(s));
  }
  loss_at_ = at::tensor(losses, at::kLong).to(device_);
  weight_at_ = at::tensor(weights, at::kLong).to(device_);
  const auto n = static_cast<std::int64_t>(streams_.size());
  state_ = at::zeros({n, replicas.any_model().state_size()}, replicas.bucket(lane).options());
  kept_ = at::zeros_like(state_);
  begun_ = at::zeros({n, 1}, at::TensorOptions(at::kBool).device(device_));
}

DeviceLane::~DeviceLane() = default;

void DeviceLane::compare_by(LossType loss, double delta, std::int64_t outputs) {
  loss_ = std::move(loss);
  delta_ = delta;
  outputs_ = outputs;
}

void DeviceLane::reduce_in_parts(const std::vector<BucketPart>& parts, HandOver hand_over) {
  for (std::size_t part = 0; part < parts.size(); ++part) points_.push_back(queue_->make_point());
  watch_ = std::make_unique<GradientWatch>(
      replicas_.leaves(lane_), parts, [this, parts, hand_over = std::move(hand_over)](int part) {
        queue_->reach(*points_[part], gradients_of(parts[part], replicas_.bucket(lane_)));
        hand_over(part, number_, *points_[part]);
      });
  if (unrecorded_.empty()) unrecorded_ = "its gradients are reduced in parts while the backward goes on";
}

bool DeviceLane::parts_come(std::chrono::milliseconds timeout) {
  const auto so = [this] { return queue_->reached(0) && handed_over_ == rounds_; };  // reached() throws what has failed
  return watch_ == nullptr || comes_true(so, timeout);
}

void DeviceLane::wait_for_parts() {
  if (!parts_come(patience_.timeout)) fail_late(patience_);
}

void DeviceLane::wait_for_parts_in_vain() noexcept {
  constexpr std::chrono::seconds kFarewell{5};
  try {
    parts_come(kFarewell);
  } catch (const std::exception&) {  // the lane's work has failed: it hands nothing over any more
  }
}

std::uint64_t DeviceLane::rounds_done() {
  std::uint64_t under_way = 0;
  for (const std::unique_ptr<Slot>& slot : slots_) under_way += slot != nullptr && !queue_->reached(slot->used_until);
  return rounds_ - under_way;
}

// The first rounds hand their parts over at the end: they allocate, which must not happen while NCCL's kernels wait for
// each other.
void DeviceLane::run(std::uint64_t number, std::function<void()> work) {
  if (watch_ == nullptr) return queue_->run(std::move(work));
  queue_->run([this, number, early = rounds_ > kRoundsToWarmUp, work = std::move(work)] {
    number_ = number;
    watch_->begin(early);
    work();
    watch_->end();
    ++handed_over_;
  });
}

void DeviceLane::make_slots(const Batch& batch) {
  const at::ScalarType dtype = replicas_.bucket(lane_).scalar_type();
  const std::int64_t k = batch.x.size(0), n = batch.x.size(1);
  for (std::unique_ptr<Slot>& slot : slots_) {
    slot = std::make_unique<Slot>();
    struct Part {
      at::Tensor Slot::Parts::*member;
      at::ScalarType type;
      Shape shape;
    };
    const std::vector<Part> parts = {
        {&Slot::Parts::x, batch.x.scalar_type(), shape_of(batch.x)},
        {&Slot::Parts::y, batch.y.scalar_type(), shape_of(batch.y)},
        {&Slot::Parts::weights, dtype, {k, n}},
        {&Slot::Parts::flags, dtype, {kFlags}},
        {&Slot::Parts::begun, at::kBool, {n, 1}},
        {&RowsThere::fresh, at::kBool, {k, n, 1}},
        {&RowsThere::filler, at::kBool, {k, n, 1}},
        {&RowsThere::counting, at::kLong, {k * n}},
    };
    const auto bytes_of = [](const Part& part) {
      return element_count(part.shape) * static_cast<std::int64_t>(at::elementSize(part.type));
    };
    const auto room_of = [&](const Part& part) { return (bytes_of(part) + kAlignment - 1) / kAlignment * kAlignment; };
    std::int64_t bytes = 0;
    for (const Part& part : parts) bytes += room_of(part);
    slot->host_bytes = accelerator_.host_memory(gpu_, bytes);
    slot->device_bytes = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
    std::int64_t at = 0;
    for (const Part& part : parts) {
      const auto view = [&](const at::Tensor& all) {
        return all.narrow(0, at, bytes_of(part)).view(part.type).view(part.shape);
      };
      slot->host.*part.member = view(slot->host_bytes);
      slot->device.*part.member = view(slot->device_bytes);
      at += room_of(part);
    }
  }
}

void DeviceLane::stage(Slot& slot, const Batch& batch, bool stop) {
  Slot::Parts& to = slot.host;
  const auto set_flag = [&](Flag flag, bool value) { set_element(to.flags, static_cast<std::int64_t>(flag), value); };
  to.flags.zero_();
  set_flag(Flag::kCut, batch.cut);
  set_flag(Flag::kStop, stop);
  if (batch.cut) return;
  to.x.copy_(batch.x);
  to.y.copy_(batch.y);
  mask_rows(batch.rows, to.x, to.y);
  if (loss_.check) loss_.check(to.y, outputs_);
  set_flag(Flag::kEnded, std::ranges::all_of(batch.rows, [](const Tag& t) { return t.ended; }));
  const auto n = static_cast<std::int64_t>(streams_.size());
  to.begun.zero_();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(batch.rows.size()); ++i) {
    set_element(to.weights, i, batch.rows[i].weight);
    if (batch.rows[i].start) to.begun.data_ptr<bool>()[i % n] = true;
  }
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(batch.rows.size()); ++i) {
    to.fresh.data_ptr<bool>()[i] = begins_afresh(batch.rows, runs_, i / n, i % n);
    to.filler.data_ptr<bool>()[i] = batch.rows[i].filler;
  }
  std::ranges::copy(counting_rows(batch.rows), to.counting.data_ptr<std::int64_t>());
}

bool DeviceLane::is_plain(const Batch& batch) const {
  const auto n = static_cast<std::int64_t>(streams_.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(batch.rows.size()); ++i) {
    const Tag& row = batch.rows[i];
    if (row.weight == 0 || row.filler || (carries_ && i >= n && begins(batch.rows, runs_, i / n, i % n))) return false;
  }
  return true;
}

void DeviceLane::train(std::shared_ptr<const Batch> batch, std::uint64_t number, bool stop, bool predicts) {
  if (slots_[0] == nullptr) {
    if (batch->cut) {  // before the first batch: there is nothing to be right about but the flag
      Batch empty{.x = at::zeros({1, 1}), .y = at::zeros({1, 1}), .known = {}, .rows = {}, .cut = true, .cut_by = {}};
      make_slots(empty);
    } else {
      make_slots(*batch);
    }
  }
  Slot& slot = *slots_[rounds_++ % slots_.size()];
  newest_ = &slot;
  wait_until(*queue_, slot.used_until, patience_);
  stage(slot, *batch, stop);
  copies_->run([&slot] { slot.device_bytes.copy_(slot.host_bytes, /*non_blocking=*/true); });
  queue_->wait_for(*copies_);
  if (batch->cut) {
    run(number, [this, &slot] {
      replicas_.bucket(lane_).zero_();
      write_tail(slot, {});
    });
  } else if (is_plain(*batch) && !predicts) {
    issue_plain(slot, batch, number);
  } else {
    run(number, [this, &slot, batch, runs = runs_] { train_any(slot, *batch, runs); });
  }
  slot.used_until = queue_->mark();
  if (!batch->cut) runs_ = last_runs(batch->rows, streams_.size());
}

// A round that is like the one before it, but for the values in its slot.
void DeviceLane::issue_plain(Slot& slot, const std::shared_ptr<const Batch>& batch, std::uint64_t number) {
  ++plain_rounds_;
  if (unrecorded_.empty() && slot.recording == nullptr && plain_rounds_ > kRoundsToWarmUp) {
    try {
      slot.recording = queue_->record(
          [this, &slot] { train_plain(slot, {.dropout = nullptr, .rows = {}, .training = true, .recorded = true}); });
    } catch (const Error& error) {
      unrecorded_ = error.what();
    }
  }
  if (slot.recording != nullptr) {
    ++replays_;
    return queue_->run([&slot] { slot.recording->replay(); });
  }
  run(number, [this, &slot, batch] { train_plain(slot, {&dropout_, batch->rows, true, true}); });
}

void DeviceLane::train_plain(Slot& slot, const Pass& pass) {
  const Slot::Parts& in = slot.device;
  replicas_.bucket(lane_).zero_();
  const Model& model = replicas_.model(lane_);
  at::Tensor prediction;
  if (carries_) {
    at::Tensor state = state_.masked_fill(in.fresh[0], 0);
    prediction = model.forward(in.x, state, pass);
    keep_state(slot, state);
  } else {
    prediction = forward_afresh(model, in.x, pass);
  }
  const at::Tensor losses = loss_.rows(prediction, in.y, delta_);
  (losses * in.weights).sum().backward();
  const c10::NoGradGuard no_gradient;
  write_tail(slot, losses);
}

void DeviceLane::train_any(Slot& slot, const Batch& batch, std::span<const std::uint64_t> runs) {
  const Slot::Parts& in = slot.device;
  replicas_.bucket(lane_).zero_();
  const Model& model = replicas_.model(lane_);
  const Pass pass{&dropout_, batch.rows, true, true};
  const auto count = static_cast<std::int64_t>(counting_rows(batch.rows).size());
  const RowsThere there{in.fresh, in.filler, in.counting.narrow(0, 0, count)};
  at::Tensor prediction;
  if (carries_) {
    at::Tensor state = state_.clone();
    prediction = forward_from(model, in.x, state, runs, pass, &there);
    keep_state(slot, state);
  } else {
    prediction = forward_afresh(model, in.x, pass);
  }
  const at::Tensor counting = counting_losses(loss_, delta_, prediction, in.y, batch.rows, &there);
  if (count > 0) {
    const at::Tensor weights = in.weights.flatten().index_select(0, there.counting);
    (counting * weights.view_as(counting)).sum().backward();
  }
  const c10::NoGradGuard no_gradient;
  at::Tensor losses = at::zeros_like(in.weights);
  losses.view(-1).index_copy_(0, there.counting, counting.detach().flatten());
  write_tail(slot, losses);
  slot.prediction = prediction.detach();
  slot.losses = losses;
}

void DeviceLane::keep_state(const Slot& slot, const at::Tensor& state) {
  const c10::NoGradGuard no_gradient;
  state_.copy_(state);
  begun_.logical_or_(slot.device.begun);
}

// `losses` [k, n] of all rows, 0 where the weight is; undefined: the lane has no batch.
void DeviceLane::write_tail(Slot& slot, const at::Tensor& losses) {
  at::Tensor& bucket = replicas_.bucket(lane_);
  const Slot::Parts& in = slot.device;
  if (losses.defined()) {
    bucket.index_copy_(0, loss_at_, (losses.detach() * in.weights).sum(0));
    bucket.index_copy_(0, weight_at_, in.weights.sum(0));
  }
  bucket.narrow(0, replicas_.layout().flag_at(lane_, Flag{0}), kFlags).copy_(in.flags);
}

DeviceLane::Result DeviceLane::result() {
  wait_for_all(*queue_, patience_);  // with a deadline, as a copy to the host has none
  Result result;
  queue_->run([&] {
    result.prediction = newest_->prediction.cpu();
    result.losses = tensor_values(newest_->losses.cpu());
  });
  wait_for_all(*queue_, patience_);
  return result;
}

DeviceLane::Result DeviceLane::predict(const Batch& batch, RecurrentState& recurrent, const LossType& loss,
                                       double delta) {
  Result result;
  const std::span rows(batch.rows);
  at::Tensor x = batch.x.clone(), y = batch.y.clone(), state;
  mask_rows(rows, x, y);
  const std::vector<std::uint64_t> runs = recurrent.runs_of(rows.first(streams_.size()));
  at::Tensor prediction, counting;
  queue_->run([&] {
    const c10::NoGradGuard no_gradient;
    const Model& model = replicas_.model(lane_);
    const Pass pass{nullptr, rows, false, true};
    const at::Tensor on_device = x.to(device_);
    if (carries_) {
      state = recurrent.gather(rows.first(streams_.size())).to(device_);
      prediction = forward_from(model, on_device, state, runs, pass);
    } else {
      prediction = forward_afresh(model, on_device, pass);
    }
    counting = counting_losses(loss, delta, prediction, y.to(device_), rows);
  });
  wait_for_all(*queue_, patience_);
  queue_->run([&] {
    result.losses = losses_of_rows(counting, rows);
    result.prediction = prediction.cpu();
    if (carries_) state = state.cpu();
  });
  wait_for_all(*queue_, patience_);
  if (carries_) recurrent.scatter(rows.last(streams_.size()), state);
  return result;
}

void DeviceLane::settle_state(const at::Tensor& held) {
  if (!carries_) return;
  const c10::NoGradGuard no_gradient;
  const at::Tensor back = kept_.masked_fill(begun_, 0);
  state_.copy_(at::where(held != 0, back, state_));
  kept_.copy_(state_);
  begun_.zero_();
}

void DeviceLane::save_state(RecurrentState& recurrent) const {
  if (!carries_) return;
  at::Tensor rows = recurrent.rows().clone();
  std::vector<std::uint64_t> runs = recurrent.runs();
  const at::Tensor own = kept_.cpu();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    rows[streams_[i]].copy_(own[static_cast<std::int64_t>(i)]);
    runs[streams_[i]] = runs_[i];
  }
  recurrent.restore(rows, std::move(runs));
}

void DeviceLane::load_state(const RecurrentState& recurrent) {
  if (!carries_) return;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    kept_[static_cast<std::int64_t>(i)].copy_(recurrent.rows()[streams_[i]]);
    runs_[i] = recurrent.runs()[streams_[i]];
  }
  state_.copy_(kept_);
}

}  // namespace lanewise
