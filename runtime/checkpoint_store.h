// The CheckpointStore is a run's checkpoints: RUN/checkpoints/step-000000000500 and so on, each whole or not there.
//
//   write to .tmp-step-N ─> everything on the disk ─> rename to step-N ─> remove what need not be kept
//
// A process killed anywhere in between leaves a valid checkpoint, if there was one before or the rename was reached.
// Where step-N exists already it is set aside as step-N.replaced, which counts as a checkpoint, until the new one
// stands.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint.h"

namespace lanewise {

struct CheckpointSettings {
  std::int64_t keep = 3;       // the newest ones, at least 1
  std::int64_t keep_best = 0;  // and those with the lowest scores
};

// The kill points that every save passes, in order; "old set aside" is passed only where one is replaced.
inline constexpr std::array kSaveKillPoints = {"save begins",      "weights written", "state written",
                                               "manifest written", "before rename",   "old set aside",
                                               "renamed",          "pruning",         "pruned"};

// Used by one thread at a time; one store at a time writes (DirectoryLock).
class CheckpointStore {
 public:
  using Say = std::function<void(const std::string&)>;  // takes lines for the user

  // Reads only: nothing on the disk is changed.
  CheckpointStore(const std::string& run_directory, Say say);
  // Writes too: makes the folder, and removes what killed saves left. Throws Error(kCheckpoint).
  CheckpointStore(const std::string& run_directory, const CheckpointSettings& settings, Say say);

  // Puts a checkpoint on the disk, replacing one of the same step, then removes those that are not to be kept. `score`:
  // of the evaluation, lower is better. Checkpoints of later steps go too: this run has come another way, or redoes
  // them because they are damaged. Throws Error(kCheckpoint) with the path and the system's reason; what was there
  // before then still is. Tensors must be on the host. Requires: made for writing.
  void save(const Checkpoint& checkpoint, std::optional<double> score);

  // The valid checkpoint with the most steps; nullopt: there is none at all. A damaged one is named to `say` and passed
  // over. Throws Error(kCheckpoint) when all are damaged, and NewerFormat for one that only a newer program can read.
  std::optional<Checkpoint> newest() const;
  // The valid one with the lowest score, of equals the newest; nullopt: there is none with a score. Else as newest().
  std::optional<Checkpoint> best() const;

 private:
  struct Entry {
    std::uint64_t step;
    bool replaced;  // set aside by a save that was killed
    std::string path;
  };
  std::vector<Entry> entries() const;  // newest first
  std::optional<Checkpoint> first_valid(const std::vector<Entry>& candidates, const char* next) const;
  void say_damaged(const Entry& entry, const Error& error, const char* next) const;
  [[noreturn]] void fail_all_damaged() const;
  void put_in_place(const std::string& temporary, const std::string& path) const;
  void prune(std::uint64_t newest);
  void remove(const std::string& path) const;
  void remove_leftovers() const;

  const std::string folder_;
  const CheckpointSettings settings_;
  const Say say_;
  const bool writes_;
  std::map<std::uint64_t, double> scores_;  // by step
};

}  // namespace lanewise
