// The CheckpointWriter saves checkpoints on a thread of its own, so that training goes on meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/checkpoint.h"

namespace lanewise {

// What a failed save means: the end of the run, or a line for the user.
enum class OnError { kStop, kContinue };

// One thread at a time calls save() and wait(); times() may be called from any.
class CheckpointWriter {
 public:
  using Save = std::function<void(const Checkpoint&, std::optional<double> score)>;  // as CheckpointStore::save

  // `on_error` takes the messages of failed saves, from the writer's thread, under kContinue.
  CheckpointWriter(Save save, OnError policy, std::function<void(const std::string&)> on_error);
  // Returns when the save in progress has ended; its error, if no wait() took it, is lost.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for an earlier save, takes a snapshot and returns; the tensors, on any device, are the caller's again and may
  // change at once. So there is one snapshot at most. Under kStop, throws what went wrong in the earlier save.
  void save(Checkpoint checkpoint, std::optional<double> score);
  // Returns when nothing is being saved. Under kStop, throws what went wrong.
  void wait();

  struct Times {
    std::uint64_t saves = 0, failed = 0;       // saves that were done, and those that failed
    double mean_seconds = 0, max_seconds = 0;  // from the snapshot to its end, of those that were done
    double snapshot_seconds = 0;               // the caller copied tensors, in all
    double wait_seconds = 0;                   // the caller waited for earlier saves, in all
  };
  Times times() const;

 private:
  void run(const std::stop_token& stop);

  const Save save_;
  const OnError policy_;
  const std::function<void(const std::string&)> on_error_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Checkpoint> pending_;  // handed over and not yet ended
  std::optional<double> score_;
  std::exception_ptr error_;
  Times times_;
  double total_seconds_ = 0;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace lanewise
