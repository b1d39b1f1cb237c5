// The Ledger: what became of every sample of every stream. produced = used + fillers + absorbed + left, or it is an
// error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/plan.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

struct StreamAccount {
  std::uint64_t produced = 0;  // by the source
  std::uint64_t used = 0;      // in steps that were applied, or in an evaluation
  std::uint64_t fillers = 0;   // of these rows: none is a sample, but each was produced
  std::uint64_t absorbed = 0;  // by per-sample nodes
  std::uint64_t left = 0;      // on edges, and in a round that did not count
  bool balanced() const { return produced == used + fillers + absorbed + left; }
};

class Ledger {
 public:
  explicit Ledger(int streams) : accounts_(static_cast<std::size_t>(streams)) {}

  void use(const Tag& row) { ++(row.filler ? accounts_[row.stream].fillers : accounts_[row.stream].used); }
  void leave(const Tag& row) { ++accounts_[row.stream].left; }
  // Rows of an evaluation: samples, and fillers.
  void take(int stream, std::uint64_t samples, std::uint64_t fillers) {
    accounts_[stream].used += samples;
    accounts_[stream].fillers += fillers;
  }
  int streams() const { return static_cast<int>(accounts_.size()); }
  std::uint64_t used(int stream) const { return accounts_[stream].used; }

  // Adds what the flow, at rest, counts and still holds.
  void close(const Plan& plan, const Flow& flow, const StreamTable& streams);
  // Throws Error(kInternal) naming the stream whose account does not balance. Requires close().
  void check(const StreamTable& streams) const;
  const StreamAccount& account(int stream) const { return accounts_[stream]; }
  // What another process has counted.
  void set(int stream, const StreamAccount& account) { accounts_[stream] = account; }

 private:
  std::vector<StreamAccount> accounts_;
};

}  // namespace lanewise
