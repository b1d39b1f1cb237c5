#include "runtime/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "graph/error.h"
#include "runtime/atomic_file.h"

namespace lanewise {
namespace {

// What a run writes by itself.
constexpr std::string_view kOwn[] = {"manifest.json",       "metrics.jsonl", "timings.jsonl",
                                     "evaluations.jsonl",   "report.json",   "graph.dot",
                                     "weights.safetensors", "checkpoints",   ".lock"};

}  // namespace

RunDirectory::RunDirectory(const std::string& path, std::function<void(const std::string&)> say)
    : path_(path), say_(std::move(say)) {}

RunDirectory::RunDirectory(const std::string& path, std::function<void(const std::string&)> say, Lengths kept)
    : path_(path), say_(std::move(say)), kept_(std::move(kept)), begun_(false) {}

void RunDirectory::begin() {
  begun_ = true;
  if (path_.empty()) return;
  for (const auto& [file, bytes] : kept_) open(file);
  for (const auto& [name, file] : files_) file->open();
}

OutputFile& RunDirectory::open(const std::string& file) {
  if (const auto found = files_.find(file); found != files_.end()) return *found->second;
  const auto kept = kept_.find(file);
  auto opened =
      std::make_unique<OutputFile>(path_ + "/" + file, kept == kept_.end() ? std::nullopt : std::optional(kept->second),
                                   /*later=*/!begun_);
  return *files_.emplace(file, std::move(opened)).first->second;
}

void RunDirectory::append(const std::string& file, std::string_view text) {
  if (!path_.empty()) open(file).write(text);
}

void RunDirectory::write(const std::string& file, std::string_view text) const {
  if (!path_.empty()) write_atomically(path_ + "/" + file, std::array{text});
}

OutputFile* RunDirectory::tap(const std::string& node_id, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      std::ranges::count(kOwn, file) > 0) {
    throw Error(Exit::kPipeline,
                fmt::format("{} cannot write to \"{}\": give a plain file name that the run does not use itself",
                            node_id, file));
  }
  if (const auto [owner, fresh] = owners_.try_emplace(file, node_id); !fresh && owner->second != node_id) {
    throw Error(Exit::kPipeline, fmt::format("{} and {} would both write to \"{}\": give one of them another file",
                                             owner->second, node_id, file));
  }
  if (path_.empty()) return nullptr;
  return &open(file);
}

RunDirectory::Lengths RunDirectory::flush() {
  Lengths lengths;
  for (auto& [name, file] : files_) {
    file->flush();
    lengths[name] = file->bytes();
  }
  return lengths;
}

void RunDirectory::flush(const std::string& file) {
  if (!path_.empty()) open(file).flush();
}

void RunDirectory::cut(const Lengths& lengths) {
  for (auto& [name, file] : files_) {
    const auto length = lengths.find(name);
    file->cut(length == lengths.end() ? 0 : length->second);
  }
}

void RunDirectory::sync(const Lengths& files) const {
  for (const auto& [name, bytes] : files) {
    const std::string path = path_ + "/" + name;
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = file >= 0 && ::fsync(file) == 0;
    const int reason = errno;
    if (file >= 0) ::close(file);
    if (!synced) {
      throw Error(Exit::kCheckpoint, fmt::format("cannot write {}: {}", path, std::generic_category().message(reason)));
    }
  }
}

void RunDirectory::close() {
  for (auto& [name, file] : files_) file->close();
  files_.clear();
}

}  // namespace lanewise
