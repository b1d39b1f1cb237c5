#include "tests/fake_nccl/notes.h"

#include <utility>

namespace fake_nccl {
namespace {

constexpr std::size_t kKept = 256;  // lines

std::string joined(const auto& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

}  // namespace

void Notes::violation(std::string line) {
  last_error_ = line;
  if (violations_.size() < kKept) violations_.push_back(std::move(line));
}

void Notes::event(std::string line) {
  events_.push_back(std::move(line));
  if (events_.size() > kKept) events_.pop_front();
}

void Notes::error(std::string words) { last_error_ = std::move(words); }

std::string Notes::violations() const { return joined(violations_); }

std::string Notes::events() const { return joined(events_); }

const char* Notes::last_error() { return told_errors_.insert(last_error_).first->c_str(); }

void Notes::clear() { violations_.clear(), events_.clear(), last_error_.clear(); }

}  // namespace fake_nccl
