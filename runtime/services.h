// The services nodes reach the runtime through (graph/registry.h, Services), besides Replicas, Communicator and
// RandomSeed.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "runtime/values.h"

namespace lanewise {

// The node whose samples a source or per-sample node sends: the source itself. Index into plan.nodes.
int source_above(const Plan& plan, int node);

// The streams of a plan by index, in the order in which lanes take them. The same in both plans of a pipeline.
class StreamTable {
 public:
  explicit StreamTable(const Plan& plan);
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int stream) const { return names_[stream]; }
  int index(const std::string& source_id) const;  // Requires: a source of the plan

 private:
  std::vector<std::string> names_;
};

// What a source needs to know of the run.
struct SourceRules {
  at::ScalarType dtype = at::kFloat;
  std::string end_rule = "first";      // first, restart, mask, error: of sources that have none of their own
  std::optional<std::int64_t> passes;  // a restarted stream's sample of a later run is `ended`
  bool evaluating = false;             // samples carry `known`, and a source's own end rule is of no account
  std::uint64_t record_every = 0;      // every so many samples carry a record of the chain; 0: none
};

// Per stream and column of the last axis: value seen by the model = (value - mean) / scale.
struct Statistics {
  std::vector<double> x_mean, x_scale, y_mean, y_scale;
};

// The statistics of every `normalize` node, by node id: fitted before step 0, frozen since, shared by both plans. A
// node in mode `running` changes its own entry while others read theirs; entries are added by one thread, while no flow
// runs.
class Normalization {
 public:
  const Statistics* find(const std::string& node_id) const;
  void set(const std::string& node_id, Statistics statistics) { table_[node_id] = std::move(statistics); }
  const std::map<std::string, Statistics>& table() const { return table_; }

 private:
  std::map<std::string, Statistics> table_;
};

// Turns targets of a stream from the units the model sees into the original ones: y * scale + mean, per last-axis
// column.
class Units {
 public:
  Units(const Plan& plan, const StreamTable& streams, const Normalization& normalization);
  at::Tensor original(int stream, const at::Tensor& y) const;
  bool normalized(int stream) const { return !scale_[stream].empty(); }
  std::span<const double> scale(int stream) const { return scale_[stream]; }  // empty: 1 everywhere

 private:
  std::vector<std::vector<double>> scale_, mean_;
};

// What the optimizer hands the run's control after each applied step, and what it is told to do.
class RunControl {
 public:
  enum class Next { kGoOn, kPause, kFinish };
  virtual ~RunControl() = default;

  // Except for this, which any lane may ask, all are called by the optimizer's firings, one at a time, under no lock.
  // A lane asks before each backward whether it shall vote to stop after this round (signal, minutes).
  virtual bool stop_wanted() const = 0;
  // Called by the optimizer node, in step order, after the step was applied in every domain. `rows`: of all its rounds.
  virtual Next after_step(const StepRecord& record, std::span<const Tag> rows, bool stop) = 0;
  // A step that was dropped under `skip`, since a loss or gradient is not finite: `what` says where. Its rows are left
  // over.
  virtual Next skipped(const std::string& what, std::span<const Tag> rows, bool stop) = 0;
  // Whether after_step() would pause or end the run once so many steps are applied, if nobody wants to stop.
  virtual bool rests_after(std::uint64_t step) const = 0;
  // Samples of a round that was begun after the last step: they are left over.
  virtual void dropped(std::span<const Tag> rows) = 0;
  // A step that does not count, since a stream has ended: nothing was applied, its rows are left over, the run ends.
  virtual void not_applied(const Reduced& reduced, std::span<const Tag> rows) = 0;
};

}  // namespace lanewise
