// The ProcessStore is where processes meet, and where they leave word when something goes wrong: a c10d store, served
// by torchrun or by the first process.
//
//   meeting          here.R       times that rank R came: more than one is a mistake
//                    agrees.R     what it was started with
//   between steps    break        one wants what each does by itself to be broken off
//   after a fault    failure      the first failure that was told: {exit, reason}
//                    left.R       rank R noticed, and is still there to say so
//                    read.R       and it knows the failure: it needs the store no more
//
// A library says that a connection is gone, not whose. So each process that notices leaves word that it is there; who
// does not within a moment is the one that is gone. What may wait for a store that does not answer is done by a thread
// of its own, which is left behind when it takes too long.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "graph/error.h"
#include "runtime/world.h"

namespace lanewise {

// This host's address on the way to `host`. Nothing is sent. Throws Error(kPeer) when there is none.
std::string own_address_towards(const std::string& host);

// The first line of what a library says; the rest is its own stack.
std::string first_line(const std::exception& error);

class ProcessStore {
 public:
  // Opens the store and waits until every process has come. Throws Error(kPeer) when one does not, or was not started
  // alike, and Error(kStopped) after a signal: in all of them.
  ProcessStore(const ProcessPlace& place, const JoinOptions& options);

  c10::intrusive_ptr<c10d::Store> store() const { return shared_->store; }
  const std::string& name_of(int rank) const { return shared_->names[rank]; }

  // Says why this process leaves, unless another has said so before, and then, by `hang_up`, lets the others notice.
  // Never throws.
  void tell_failure(
      Exit exit, const std::string& reason, const std::function<void()>& hang_up = [] {});
  // World::break_off().
  bool break_off(bool here);
  // Why what the processes did together has failed, by what a library `said`: the same in all that are still there.
  // `when`: "in round 12". `until`: the others may take so long to notice, and a moment more.
  Error what_happened(const std::string& when, const std::string& said,
                      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now());
  bool failed() const { return failed_; }

 private:
  struct Shared {
    c10::intrusive_ptr<c10d::Store> store;
    std::vector<std::string> names;
    int rank = 0;
    bool serves = false;
  };

  static void meet(const Shared& shared, const JoinOptions& options, std::chrono::steady_clock::time_point started);
  static void agree(const Shared& shared, const JoinOptions& options);
  [[noreturn]] static void refuse(const Shared& shared, Exit exit, const std::string& reason);
  // Says that this process knows the failure. The one that serves the store stays until the others do, `most` so long.
  static void take_leave(const Shared& shared, std::chrono::milliseconds most);
  // The first that is told stays.
  static void tell(const Shared& shared, Exit exit, const std::string& reason);
  static std::vector<int> lacking(const Shared& shared, const char* key);
  static std::string names(const Shared& shared, const std::vector<int>& ranks);
  static Error told_failure(const Shared& shared);
  static Error find_out(const Shared& shared, const std::string& when, const std::string& said,
                        std::chrono::steady_clock::time_point until);

  // What `act` says; nullopt where the store does not answer within a second.
  std::optional<bool> in_short_time(std::function<bool(const Shared&)> act);
  Error store_is_gone(const std::string& when);

  std::shared_ptr<Shared> shared_;
  bool failed_ = false;

  std::mutex asking_;  // guards asked_ and mute_
  std::chrono::steady_clock::time_point asked_{};
  bool mute_ = false;  // the store does not answer
  std::atomic<bool> broken_off_ = false;
};

}  // namespace lanewise
