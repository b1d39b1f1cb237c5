// The RunDirectory is what a run leaves on disk, and its one channel to the user.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/output_file.h"

namespace lanewise {

class RunDirectory {
 public:
  // Bytes of each file that grows with the run.
  using Lengths = std::map<std::string, std::uint64_t>;

  // `path`: a directory that is there, "" for none: then nothing is written. `say` takes lines for the user.
  RunDirectory(const std::string& path, std::function<void(const std::string&)> say);
  // Of a run that is resumed: goes on behind what the files had when the checkpoint was taken, `kept`; what came after
  // is cut, and a file that is not among them begins anew. No file is touched before begin().
  RunDirectory(const std::string& path, std::function<void(const std::string&)> say, Lengths kept);
  void begin();

  std::atomic<std::uint64_t> step{0};  // steps applied so far

  // A line for the user; from any thread.
  void say(const std::string& line) const { say_(line); }

  // Appends to one of the run's own files ("metrics.jsonl"), made at its first line. One thread at a time and file.
  void append(const std::string& file, std::string_view text);
  // Writes a whole file.
  void write(const std::string& file, std::string_view text) const;
  // While nodes are made, by one thread. The file that a tap node writes to, made at the first call and shared by the
  // node's instances in training and evaluation. Null: nothing is written. Throws Error(kPipeline) for a name that is
  // no plain file name or is taken.
  OutputFile* tap(const std::string& node_id, const std::string& file);

  // Writes what is buffered, so that a reader sees whole lines; the length of each file then. While no flow runs.
  Lengths flush();
  // The same for one file, by the thread that appends to it.
  void flush(const std::string& file);
  // Takes back what was written since flush() returned these lengths.
  void cut(const Lengths& lengths);
  // Returns when these files are on the disk. From any thread.
  void sync(const Lengths& files) const;
  void close();

 private:
  const std::string path_;
  const std::function<void(const std::string&)> say_;
  OutputFile& open(const std::string& file);

  const Lengths kept_;
  bool begun_ = true;
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
  std::map<std::string, std::string> owners_;  // file -> node id
};

}  // namespace lanewise
