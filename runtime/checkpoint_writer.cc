#include "runtime/checkpoint_writer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void copy_to_host(std::vector<NamedTensor>& tensors) {
  for (NamedTensor& named : tensors) {
    named.tensor = named.tensor.detach().to(at::TensorOptions(at::kCPU), /*non_blocking=*/false, /*copy=*/true,
                                            at::MemoryFormat::Contiguous);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(Save save, OnError policy, std::function<void(const std::string&)> on_error)
    : save_(std::move(save)), policy_(policy), on_error_(std::move(on_error)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

CheckpointWriter::~CheckpointWriter() = default;  // the thread is asked to stop, and waited for

void CheckpointWriter::save(Checkpoint checkpoint, std::optional<double> score) {
  wait();
  const auto begin = Clock::now();
  copy_to_host(checkpoint.weights);
  copy_to_host(checkpoint.state);
  const std::lock_guard lock(mutex_);
  times_.snapshot_seconds += seconds_since(begin);
  pending_ = std::move(checkpoint);
  score_ = score;
  changed_.notify_all();
}

void CheckpointWriter::wait() {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_; });
  times_.wait_seconds += seconds_since(begin);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

CheckpointWriter::Times CheckpointWriter::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void CheckpointWriter::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return pending_.has_value(); })) {
    lock.unlock();
    const auto begin = Clock::now();
    std::exception_ptr error;
    try {
      save_(*pending_, score_);
    } catch (const std::exception& fault) {
      error = std::current_exception();
      if (policy_ == OnError::kContinue) on_error_(fault.what());
    }
    const double seconds = seconds_since(begin);
    lock.lock();
    if (error) {
      ++times_.failed;
      if (policy_ == OnError::kStop) error_ = error;
    } else {
      total_seconds_ += seconds;
      times_.mean_seconds = total_seconds_ / static_cast<double>(++times_.saves);
      times_.max_seconds = std::max(times_.max_seconds, seconds);
    }
    pending_.reset();
    changed_.notify_all();
  }
}

}  // namespace lanewise
