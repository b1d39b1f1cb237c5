// The RunRecord is what has become of a run so far: what its checkpoints carry on to the run that goes on from them,
// and what its report tells.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ledger.h"
#include "runtime/services.h"
#include "runtime/world.h"

namespace lanewise {

struct RunRecord {
  explicit RunRecord(int streams) : trained_before(static_cast<std::size_t>(streams)) {}

  std::optional<double> first_loss, last_loss;
  std::uint64_t samples = 0;  // trained on, of the runs that this one resumes, too
  double steps_per_pass = 0;  // the longest stream's; 0: not known yet

  std::uint64_t skips = 0;              // steps that were dropped under `skip`
  std::vector<std::string> skips_told;  // the first of them
  void skip(const std::string& what);

  nlohmann::ordered_json evaluation;  // the last line of evaluations.jsonl; null: none
  std::uint64_t evaluated_at = 0;     // the step then

  std::string reason, ended_by;  // why the run has ended, and the stream whose end it was
  bool stopped = false;          // by a signal, before the work was done

  // Of the run that this one resumes.
  std::uint64_t resumed_at = 0, samples_before = 0;
  std::vector<std::uint64_t> trained_before;  // by stream
  double seconds_before = 0;

  // The processes agree on why the training has ended: the first that was stopped tells the others, else the first that
  // knows.
  void settle(World& world);

  // As part of a checkpoint's manifest. `trained`: samples by stream, of all runs and processes; `seconds` of training.
  nlohmann::ordered_json saved(const std::vector<std::uint64_t>& trained, double seconds) const;
  void restore(const nlohmann::ordered_json& manifest);
  // As part of the report.
  nlohmann::ordered_json told(const StreamTable& streams, const Ledger& ledger) const;
};

// A number of a manifest, null where there is none.
std::optional<double> number_in(const nlohmann::ordered_json& value);

}  // namespace lanewise
