// What the fake NCCL writes down for its test: the rules that were broken, the calls, and the last error.
//
// Part of the Library, whose mutex guards it.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

namespace fake_nccl {

class Notes {
 public:
  void violation(std::string line);  // also the last error
  void event(std::string line);
  void error(std::string words);

  std::string violations() const;  // the first 256, a line each
  std::string events() const;      // the last 256

  // Stays valid as long as this lives, whatever is noted later.
  const char* last_error();

  void clear();

 private:
  std::vector<std::string> violations_;
  std::deque<std::string> events_;
  std::string last_error_;
  std::set<std::string> told_errors_;  // every text that last_error() has given out
};

}  // namespace fake_nccl
