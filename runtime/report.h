// The texts that a run leaves: lines of metrics.jsonl, the manifest, and the parts of report.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/spec.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/ledger.h"
#include "runtime/values.h"

namespace lanewise {

// One line of metrics.jsonl: {"step":1,"loss":…,"lanes":[…],"streams":[…],"n":…,"lr":…,"grad_norm":…}. No clocks, so
// that two equal runs leave equal files. Numbers are the shortest that read back the same.
std::string metrics_line(const StepRecord& record);

// What a run is, written before its first step: the expanded pipeline, and what it can be planned again from.
nlohmann::ordered_json manifest(const Plans& plans, int threads);
// What a manifest was made from. Throws Error(kCheckpoint) naming `path` when it is none of a run.
PlanSource plan_source(const nlohmann::json& manifest, const std::string& path);

// "loss 0.55, mse 0.55 (last value 0.90, training mean 0.63), 963 targets", of what an evaluation gave.
std::string evaluation_text(const nlohmann::ordered_json& evaluation);

nlohmann::ordered_json edges_json(const FlowReport& report);
nlohmann::ordered_json nodes_json(const FlowReport& report);

nlohmann::ordered_json checkpoints_json(const CheckpointWriter::Times& times);

std::string version();              // of lanewise
nlohmann::ordered_json versions();  // of lanewise and of what it stands on

}  // namespace lanewise
