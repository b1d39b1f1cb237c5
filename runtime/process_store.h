// The ProcessStore is where processes meet, and where they leave word when something goes wrong: a c10d store, served
// by torchrun or by the first process.
//
//   finding          groups       so many groups of processes have begun here: torchrun's store outlives them
//                    hello.R      a word that rank R has made up; rank 0 answers it in
//                    welcome.R    that word, and the number of the group
//   meeting          here.R       times that rank R came: more than one is a mistake
//                    agrees.R     the digest of what it was started with, and text.R all of that
//   between steps    break        one wants what each does by itself to be broken off
//   after a fault    failure      the first failure that was told: {exit, reason}
//                    left.R       rank R noticed, and is still there to say so
//                    read.R       and it knows the failure: it needs the store no more
//
// A library says that a connection is gone, not whose. So each process that notices leaves word that it is there; who
// does not within a moment is the one that is gone, unless it is known otherwise. What may wait for a store that does
// not answer is done by a thread of its own, which is left behind when it takes too long.
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
  // `when`: "in round 12". `missing`: who is known to be gone or silent. `until`: the others may take so long to
  // notice, and a moment more.
  Error what_happened(const std::string& when, const std::string& said, const std::vector<int>& missing = {},
                      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now());
  // tell_absence().
  static void leave_word(const ProcessPlace& place, const JoinOptions& options, Exit exit, const std::string& reason);
  bool failed() const { return failed_; }

 private:
  struct Shared {
    c10::intrusive_ptr<c10d::Store> door;   // where groups are found
    c10::intrusive_ptr<c10d::Store> store;  // of this group; null before enter()
    std::vector<std::string> names;
    std::string holder;  // who holds the store
    int rank = 0;
    std::int64_t group = 0;
    std::vector<std::string> welcomed;  // by rank 0: the word of each rank
  };

  static std::shared_ptr<Shared> open(const ProcessPlace& place, const JoinOptions& options);
  // Finds the group of processes that has begun with this one.
  static void enter(Shared& shared, const JoinOptions& options, std::chrono::steady_clock::time_point started);
  static void welcome(Shared& shared);
  static void meet(Shared& shared, const JoinOptions& options, std::chrono::steady_clock::time_point started);
  static void agree(Shared& shared, const JoinOptions& options);
  [[noreturn]] static void refuse(Shared& shared, Exit exit, const std::string& reason);
  // Says that this process knows the failure. The first, which may hold the store, stays until the others do, `most` so
  // long.
  static void take_leave(Shared& shared, std::chrono::milliseconds most);
  // The first that is told stays.
  static void tell(const Shared& shared, Exit exit, const std::string& reason);
  static std::vector<int> lacking(const Shared& shared, const char* key);
  static std::string names(const Shared& shared, const std::vector<int>& ranks);
  static Error told_failure(const Shared& shared);
  static Error find_out(const Shared& shared, const std::string& when, const std::string& said,
                        std::vector<int> missing, std::chrono::steady_clock::time_point until);

  // What `act` says; nullopt where the store does not answer in this time.
  std::optional<bool> in_time(std::chrono::milliseconds most, std::function<bool(Shared&)> act);
  Error store_is_gone(const std::string& when);

  std::shared_ptr<Shared> shared_;
  bool failed_ = false;

  std::mutex asking_;  // guards asked_ and mute_
  std::chrono::steady_clock::time_point asked_{};
  bool mute_ = false;  // the store does not answer
  std::atomic<bool> broken_off_ = false;
};

}  // namespace lanewise
