// What the processes of a training tell each other between two steps. All by all of them together; one alone hears
// itself.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "graph/flow.h"
#include "runtime/checkpoint.h"
#include "runtime/lane_table.h"
#include "runtime/ledger.h"
#include "runtime/world.h"

namespace lanewise {

// What each process gives, by rank.
std::vector<nlohmann::json> gather_json(World& world, const nlohmann::json& own);

// Whether it is so in any process.
bool any_process(World& world, bool here);

// As data_files(), of all processes. `own`: this process's part of the plan. Throws Error(kPeer) where a file that
// several read is not the same in all.
nlohmann::ordered_json data_files_of_all(World& world, const Plan& own);

// What the first process has read.
std::optional<Checkpoint> checkpoint_of_first(World& world, std::optional<Checkpoint> own);

// A number of each stream, from the process that reads it.
std::vector<std::uint64_t> by_stream(World& world, const LaneTable& lanes, const std::vector<std::uint64_t>& own);

// Where the weights of other processes differ: "bias of rank 2 (lane2) differs from that of rank 0 (lane0)"; "" where
// they do not.
std::string weights_apart(World& world, const Replicas& replicas);

// What the nodes and edges of all have counted, as one report of the `whole` plan; `ledger` takes in the accounts of
// other processes' streams.
FlowReport reports_of_all(World& world, const LaneTable& lanes, const Plan& whole, const FlowReport& own,
                          Ledger& ledger);

}  // namespace lanewise
