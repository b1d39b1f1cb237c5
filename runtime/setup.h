// What training, evaluation and prediction set up alike from a plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/cut.h"
#include "graph/plan.h"
#include "runtime/replica.h"
#include "runtime/services.h"

namespace lanewise {

class Accelerator;

// One thread an operation: the lanes are what runs in parallel. The setting is the calling thread's own.
void use_one_thread();

// What the end of a source's stream means in a training: its own "on_end", or the run's.
std::string end_rule_of(const Plan& train, const PlanNode& source);

// How sources behave in a training.
SourceRules source_rules(const Plan& train);

// Why a model whose buffers training changes cannot be trained with batches of so many rows, or by these settings; "":
// it can.
std::string buffers_problem(const RunSettings& run, const std::string& model, std::int64_t rows);

// What a run that is resumed will not repeat, a line each.
std::vector<std::string> inexact_parts(const Plan& train);

// The replicas of a whole training plan's one model, one lane a compute node; of them, those of this process. Throws
// Error(kPipeline) for a pipeline that trains nothing, and Error(kCheckpoint) when the model's `init` file does not
// fit; where the model is code of the user's, it is loaded, and throws as its type says. `accelerator`: of lanes on
// GPUs; null: all are on the host, whatever the plan says.
std::unique_ptr<Replicas> make_replicas(const Plan& train, const StreamTable& streams, LaneRange own,
                                        const Accelerator* accelerator = nullptr);

}  // namespace lanewise
