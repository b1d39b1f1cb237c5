// Between two steps a training is: weights, optimizer, the streams' recurrent state, how far each stream was consumed,
// and what the nodes of the step hold. A snapshot copies all that into a Checkpoint; restoring puts it back.
#pragma once

#include <memory>
#include <vector>

#include "graph/flow.h"
#include "runtime/checkpoint.h"
#include "runtime/cursor.h"
#include "runtime/lane_table.h"
#include "runtime/optimizer_ops.h"
#include "runtime/recurrent_state.h"
#include "runtime/replica.h"
#include "runtime/services.h"
#include "runtime/target_means.h"
#include "runtime/world.h"

namespace lanewise {

// The parts of a training, which the Trainer owns. Of several processes, each has its own.
struct TrainingParts {
  const Plan& plan;  // of this process
  const StreamTable& streams;
  Replicas& replicas;
  Optimizers& optimizers;
  RecurrentState& recurrent;
  Normalization& normalization;
  TargetMeans& means;
  Cursors& cursors;
  const LaneTable& lanes;
  World& world;
};

// A copy of everything after `step` steps, with tensors of its own. Requires: the flow rests, and nothing but weights
// is on its edges behind the lanes. Of several processes, all call it, and the first gets the whole.
Checkpoint take_snapshot(const TrainingParts& parts, const Flow& flow, std::uint64_t step);

// Puts back what does not belong to nodes. Throws Error(kCheckpoint) naming what does not fit this pipeline.
void restore_parts(const TrainingParts& parts, const Checkpoint& checkpoint);
// Puts the state of new nodes back, which the flow is then to be made of.
void restore_nodes(const TrainingParts& parts, const Checkpoint& checkpoint, std::vector<std::unique_ptr<Node>>& nodes);

// A state dict, into every memory domain, the buffers into every lane. Throws as above.
void load_weights(Replicas& replicas, const std::vector<NamedTensor>& weights, const std::string& from);
// The model of a checkpoint: its state dict, and the buffers that its lanes had. Throws as above.
void load_model(Replicas& replicas, const Checkpoint& checkpoint);

nlohmann::ordered_json save_normalization(const Normalization& normalization);
void load_normalization(Normalization& normalization, const nlohmann::json& saved);

}  // namespace lanewise
