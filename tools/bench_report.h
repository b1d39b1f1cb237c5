// What `lanewise bench` has measured, as numbers and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "runtime/profiler.h"

namespace lanewise {

// Of turns: {"min", "median", "max"}.
nlohmann::ordered_json spread(std::vector<double> values);
std::vector<double> steps_per_second(const std::vector<Turn>& turns);

// The form is in README.md, "Where a round goes"; without trials. `turns`: at least one; the parts of a round are those
// of the median.
nlohmann::ordered_json bench_report(const Plan& plan, const std::vector<Turn>& turns, int threads);

// A change of the pipeline that was tried, in turns with what it is.
struct Trial {
  std::string change;                // "run.fuse=2"
  std::string write;                 // what to write into the file, and where
  std::vector<double> before, with;  // steps per second, a value a turn
};
// It is faster if its slowest turn was faster than any turn without it.
nlohmann::ordered_json trial_json(const Trial& trial);

std::string bench_text(const nlohmann::ordered_json& report);

}  // namespace lanewise
