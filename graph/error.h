// What can go wrong, as exceptions that carry the exit code of the command.
//
// Error is for what a user can cause; what only lanewise itself can cause is an Error with Exit::kInternal.
// A message says what happened, where, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace lanewise {

// The exit codes of the `lanewise` command.
enum class Exit {
  kDone = 0,
  kCommandLine = 2,
  kPipeline = 3,
  kData = 4,
  kGenerator = 5,
  kCheckpoint = 6,
  kStall = 7,
  kPeer = 8,
  kDevice = 9,
  kNonFinite = 10,
  kStopped = 11,
  kInternal = 70,
};

class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message) : std::runtime_error(message), exit_(exit) {}
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

// Where a value of a pipeline stands: `at` is "FILE:LINE:COLUMN" (1-based) or "command line", `pointer` its JSON
// pointer or the option.
struct Place {
  std::string at;
  std::string pointer;
};

// One thing wrong with a pipeline; `rule` says what is wrong and what would be right, on one line or more.
struct Problem {
  Place place;
  std::string rule;
  // or kData: a data file that is missing, unreadable or lacks a column; or kDevice: a GPU that is not here
  Exit exit = Exit::kPipeline;
};

// All problems of a pipeline at once, in file order. exit() is kPipeline when any problem is one of the pipeline
// itself, else kData when any is of data, else kDevice. what() is the whole text that the command prints:
//
//   configs/mine.json:6:7  /nodes/0/params/correlaton
//     ar1 has no parameter "correlaton"; did you mean "correlation"?
//   1 problem; nothing was started
class PipelineError : public Error {
 public:
  explicit PipelineError(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

}  // namespace lanewise
