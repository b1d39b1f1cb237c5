#include "runtime/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>

#include "runtime/atomic_file.h"
#include "runtime/kill_point.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-", kStep = "step-", kReplaced = ".replaced";

void check(const std::error_code& error, const char* doing, const std::string& path) {
  if (error) throw Error(Exit::kCheckpoint, fmt::format("cannot {} {}: {}", doing, path, error.message()));
}

void rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(error, "rename to", to);
}

void remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(error, "remove", path);
}

bool exists(const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory) check(error, "read", path);
  return there;
}

// The names in a folder; none when it is not there.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error != std::errc::no_such_file_or_directory) check(error, "read", folder);
  return names;
}

std::string name_of(std::uint64_t step) { return fmt::format("{}{:012}", kStep, step); }

}  // namespace

CheckpointStore::CheckpointStore(const std::string& run_directory, Say say)
    : folder_(run_directory + "/checkpoints"), say_(std::move(say)), writes_(false) {}

CheckpointStore::CheckpointStore(const std::string& run_directory, const CheckpointSettings& settings, Say say)
    : folder_(run_directory + "/checkpoints"), settings_(settings), say_(std::move(say)), writes_(true) {
  std::error_code error;
  fs::create_directories(folder_, error);
  check(error, "create", folder_);
  sync_folder(run_directory);
  remove_leftovers();
  if (settings_.keep_best == 0) return;
  for (const Entry& entry : entries()) {
    try {
      if (const auto score = score_of(load_checkpoint_manifest(entry.path))) scores_[entry.step] = *score;
    } catch (const Error&) {  // one that cannot be read has no score; whoever loads it is told why
    }
  }
}

void CheckpointStore::save(const Checkpoint& checkpoint, std::optional<double> score) {
  if (!writes_) throw Error(Exit::kInternal, "this checkpoint store only reads");
  kill_point("save begins");
  const std::string path = folder_ + "/" + name_of(checkpoint.step);
  const std::string temporary = fmt::format("{}/{}{}", folder_, kTemporary, name_of(checkpoint.step));
  const auto discard = [&] {
    std::error_code ignored;  // the next store made for writing tries again
    fs::remove_all(temporary, ignored);
  };
  try {
    std::error_code error;
    fs::create_directory(temporary, error);
    check(error, "create", temporary);
    write_checkpoint(temporary, checkpoint, score);
    kill_point("before rename");
    put_in_place(temporary, path);
  } catch (const Error& error) {
    discard();
    throw Error(error.exit(), fmt::format("the checkpoint of step {} is not saved, earlier ones are untouched: {}",
                                          checkpoint.step, error.what()));
  } catch (...) {
    discard();
    throw;
  }
  scores_.erase(checkpoint.step);
  if (score && std::isfinite(*score)) scores_[checkpoint.step] = *score;
  prune(checkpoint.step);
  kill_point("pruned");
}

void CheckpointStore::put_in_place(const std::string& temporary, const std::string& path) const {
  const std::string aside = path + std::string(kReplaced);
  const bool replaces = exists(path);
  if (replaces) {
    rename(path, aside);
    kill_point("old set aside");
  }
  try {
    rename(temporary, path);
  } catch (...) {
    std::error_code ignored;  // aside counts as a checkpoint just as well
    if (replaces) fs::rename(aside, path, ignored);
    throw;
  }
  sync_folder(folder_);
  kill_point("renamed");
}

void CheckpointStore::prune(std::uint64_t newest) {
  const std::vector<Entry> all = entries();
  std::vector<std::pair<double, std::uint64_t>> scored;
  std::set<std::uint64_t> kept;
  for (const Entry& entry : all) {
    if (entry.replaced || entry.step > newest) continue;
    if (std::ssize(kept) < std::max<std::int64_t>(settings_.keep, 1)) kept.insert(entry.step);
    if (const auto score = scores_.find(entry.step); score != scores_.end())
      scored.emplace_back(score->second, entry.step);
  }
  std::ranges::stable_sort(scored, {}, &std::pair<double, std::uint64_t>::first);
  scored.resize(std::min<std::size_t>(scored.size(), std::max<std::int64_t>(settings_.keep_best, 0)));
  for (const auto& [score, step] : scored) kept.insert(step);

  for (const Entry& entry : all) {
    if (!kept.contains(entry.step)) scores_.erase(entry.step);
    if (entry.replaced || !kept.contains(entry.step)) remove(entry.path);
  }
}

// What is removed is first given a name that no one takes for a checkpoint.
void CheckpointStore::remove(const std::string& path) const {
  const std::string temporary = fmt::format("{}/{}removed-{}", folder_, kTemporary, fs::path(path).filename().string());
  remove_all(temporary);
  rename(path, temporary);
  kill_point("pruning");
  remove_all(temporary);
}

void CheckpointStore::remove_leftovers() const {
  for (const std::string& name : names_in(folder_)) {
    if (name.starts_with(kTemporary)) remove_all(folder_ + "/" + name);
  }
  for (const Entry& entry : entries()) {
    if (!entry.replaced) continue;
    const std::string path = folder_ + "/" + name_of(entry.step);
    if (exists(path)) {
      remove(entry.path);
    } else {
      rename(entry.path, path);
    }
  }
}

std::vector<CheckpointStore::Entry> CheckpointStore::entries() const {
  std::vector<Entry> found;
  for (const std::string& name : names_in(folder_)) {
    std::string_view text = name;
    if (!text.starts_with(kStep)) continue;
    const bool replaced = text.ends_with(kReplaced);
    if (replaced) text.remove_suffix(kReplaced.size());
    std::uint64_t step = 0;
    const auto [end, fault] = std::from_chars(text.data() + kStep.size(), text.data() + text.size(), step);
    if (fault == std::errc() && text == name_of(step)) found.push_back({step, replaced, folder_ + "/" + name});
  }
  std::ranges::sort(found, [](const Entry& a, const Entry& b) {
    return a.step != b.step ? a.step > b.step : a.replaced < b.replaced;
  });
  return found;
}

std::optional<Checkpoint> CheckpointStore::first_valid(const std::vector<Entry>& candidates, const char* next) const {
  for (const Entry& entry : candidates) {
    try {
      Checkpoint checkpoint = load_checkpoint(entry.path);
      if (checkpoint.step == entry.step) return checkpoint;
      throw Error(Exit::kCheckpoint, fmt::format("{}/manifest.json: is of step {}", entry.path, checkpoint.step));
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      say_damaged(entry, error, &entry == &candidates.back() ? "" : next);
    }
  }
  return std::nullopt;
}

void CheckpointStore::say_damaged(const Entry& entry, const Error& error, const char* next) const {
  say_(fmt::format("checkpoint {} is damaged: {}{}", entry.path, error.what(), next));
}

std::optional<Checkpoint> CheckpointStore::newest() const {
  const std::vector<Entry> all = entries();
  std::optional<Checkpoint> found = first_valid(all, "; taking an older one");
  if (!found && !all.empty()) fail_all_damaged();
  return found;
}

std::optional<Checkpoint> CheckpointStore::best() const {
  std::vector<std::pair<double, Entry>> scored;
  bool damaged = false;
  for (const Entry& entry : entries()) {
    try {
      if (const auto score = score_of(load_checkpoint_manifest(entry.path))) scored.emplace_back(*score, entry);
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      say_damaged(entry, error, "");
      damaged = true;
    }
  }
  std::ranges::stable_sort(scored, {}, &std::pair<double, Entry>::first);
  std::vector<Entry> candidates;
  for (auto& [score, entry] : scored) candidates.push_back(std::move(entry));
  std::optional<Checkpoint> found = first_valid(candidates, "; taking the next best");
  if (!found && (damaged || !candidates.empty())) fail_all_damaged();
  return found;
}

void CheckpointStore::fail_all_damaged() const {
  throw Error(Exit::kCheckpoint,
              fmt::format("no checkpoint in {} is valid; put one back from a copy, or begin anew in another directory",
                          folder_));
}

}  // namespace lanewise
