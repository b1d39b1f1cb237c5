// The files that a plan reads, of data and of code, and their contents' sums: a resumed run must read what the run has
// read.
#pragma once

#include <nlohmann/json.hpp>

#include "graph/plan.h"

namespace lanewise {

// {node id: {"path" (absolute), "sha256"}} of every source that reads a regular file, and code_files(). Throws
// Error(kData) when one cannot be read.
nlohmann::ordered_json data_files(const Plan& plan);

// The same of models ("models.net") and losses ("lane3") that are code of the user's.
nlohmann::ordered_json code_files(const Plan& plan);

// Throws Error(kCheckpoint) naming the file whose contents are not what they were; one that a source no longer reads,
// or that it reads now, is of no account.
void check_data_files(const nlohmann::ordered_json& then, const nlohmann::ordered_json& now);

}  // namespace lanewise
