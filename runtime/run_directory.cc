#include "runtime/run_directory.h"

#include <array>
#include <filesystem>

#include "graph/error.h"
#include "runtime/atomic_file.h"

namespace lanewise {
namespace {

// What a run writes by itself.
constexpr std::string_view kOwn[] = {"manifest.json", "metrics.jsonl",  "timings.jsonl",       "evaluations.jsonl",
                                     "report.json",   "graph.dot",      "weights.safetensors", "checkpoints"};

}  // namespace

RunDirectory::RunDirectory(const std::string& path, std::function<void(const std::string&)> say)
    : path_(path), say_(std::move(say)) {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw Error(Exit::kCheckpoint, fmt::format("cannot make the run directory {}: {}; choose another with --out", path_, error.message()));
  }
}

void RunDirectory::append(const std::string& file, std::string_view text) {
  if (path_.empty()) return;
  std::unique_ptr<OutputFile>& open = files_[file];
  if (open == nullptr) open = std::make_unique<OutputFile>(path_ + "/" + file);
  open->write(text);
}

void RunDirectory::write(const std::string& file, std::string_view text) const {
  if (!path_.empty()) write_atomically(path_ + "/" + file, std::array{text});
}

OutputFile* RunDirectory::tap(const std::string& node_id, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos || std::ranges::count(kOwn, file) > 0) {
    throw Error(Exit::kPipeline, fmt::format("{} cannot write to \"{}\": give a plain file name that the run does not use itself",
                                             node_id, file));
  }
  if (const auto [owner, fresh] = owners_.try_emplace(file, node_id); !fresh && owner->second != node_id) {
    throw Error(Exit::kPipeline, fmt::format("{} and {} would both write to \"{}\": give one of them another file",
                                             owner->second, node_id, file));
  }
  if (path_.empty()) return nullptr;
  std::unique_ptr<OutputFile>& open = files_[file];
  if (open == nullptr) open = std::make_unique<OutputFile>(path_ + "/" + file);
  return open.get();
}

void RunDirectory::flush() {
  for (auto& [name, file] : files_) file->flush();
}

void RunDirectory::close() {
  for (auto& [name, file] : files_) file->close();
  files_.clear();
}

}  // namespace lanewise
