// optimizer: decides from the reduced tail whether the step counts, then steps every memory domain alike.
//
//   finite vote -> optimizer -> schedule -> record -> new weights
//
// A step is applied by every domain or by none. What is not applied leaves no trace in the streams' recurrent state
// and the lanes' buffers.
//
//   a stream has ended       the step does not count, and the run ends
//   not finite               run.non_finite: stop, an error that says where; skip, the step is dropped; allow, it
//                            is applied
#include <ATen/ATen.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/communicator.h"
#include "runtime/devices/device_training.h"
#include "runtime/finite.h"
#include "runtime/lane_table.h"
#include "runtime/optimizer_ops.h"
#include "runtime/recurrent_state.h"
#include "runtime/replica.h"
#include "runtime/services.h"
#include "runtime/target_means.h"
#include "runtime/tensors.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

constexpr int kWeights = 0, kStep = 1;  // output ports
constexpr int kMostSkips = 100;         // in a row: what comes will not be any better

class Optimizer final : public Node {
 public:
  using Params = OptimizerParams;

  Optimizer(const Params& params, const NodeContext& context)
      : params_(params),
        plan_(context.plan),
        streams_(context.services.get<StreamTable>()),
        lanes_(context.services.get<LaneTable>()),
        world_(context.services.get<World>()),
        communicator_(context.services.get<Communicator>()),
        replicas_(context.services.get<Replicas>()),
        optimizers_(context.services.get<Optimizers>()),
        recurrent_(context.services.get<RecurrentState>()),
        means_(context.services.get<TargetMeans>()),
        control_(context.services.get<RunControl>()),
        devices_(context.services.find<DeviceTraining>()),
        lags_(lags(context.plan, world_)) {}

  Packet initial(std::size_t) override { return Packet::of(Weights{step_, round_}); }

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) {
      settle_late();
      firing.end();
    } else {
      const RunControl::Next next = take(firing.input(0).take<Reduced>());
      if (next == RunControl::Next::kFinish) {
        firing.finish();
      } else {
        firing.emit(kWeights, Packet::of(Weights{step_, round_}));
      }
      if (next == RunControl::Next::kPause) firing.pause();
    }
    if (!applied_.empty()) firing.emit(kStep, Packet::of(std::exchange(applied_, {})));
  }

  // Saved between two steps.
  nlohmann::json state() const override { return {{"step", step_}, {"round", round_}, {"skips", skips_}}; }
  void restore(const nlohmann::json& state) override {
    step_ = state.at("step");
    round_ = state.at("round");
    skips_ = state.at("skips");
  }

 private:
  RunControl::Next take(Reduced reduced) {
    ++round_;
    if (settle_late() == RunControl::Next::kFinish) {
      drop(reduced);
      return RunControl::Next::kFinish;
    }
    const bool late = devices_ != nullptr && !reduced.known && may_be_late(reduced);
    if (devices_ != nullptr && reduced.complete) devices_->apply(rate());
    if (!late) return settle(std::move(reduced));
    late_ = std::move(reduced);
    return RunControl::Next::kGoOn;
  }

  RunControl::Next settle_late() { return late_ ? settle(*std::exchange(late_, {})) : RunControl::Next::kGoOn; }

  void roll_back() {
    if (devices_ != nullptr) return devices_->roll_back();
    recurrent_.roll_back(rows_);
    replicas_.buffers().roll_back();
  }

  // What a round means, and the books on it. On GPUs what is applied has been issued, and held back where the round
  // does not count.
  RunControl::Next settle(Reduced reduced) {
    if (!reduced.known) devices_->tell(reduced);
    stop_ = stop_ || reduced.stop;
    add_rows(reduced, rows_);
    if (reduced.cut || reduced.all_ended) {
      roll_back();
      control_.not_applied(reduced, rows_);
      return RunControl::Next::kFinish;
    }
    for (const Gradient& g : reduced.gradients) learn_means(*g.batch);
    if (!reduced.complete) return RunControl::Next::kGoOn;

    const std::int64_t n = replicas_.layout().parameters;
    const double norm = reduced.n == 0      ? 0
                        : reduced.grad_norm ? *reduced.grad_norm
                                            : lanewise::norm(replicas_.reduced(0), n);
    const bool finite = reduced.non_finite.empty() && std::isfinite(norm);
    RunControl::Next next;
    if (finite || plan_.run.non_finite == "allow") {
      next = apply(reduced, norm);
    } else if (plan_.run.non_finite == "skip") {
      next = skip(reduced);
    } else {
      throw Error(Exit::kNonFinite,
                  blame(reduced) +
                      "\n  nothing was applied; look at these samples, lower the optimizer's lr, or let "
                      "run.non_finite skip such steps");
    }
    rows_.clear();
    stop_ = false;
    return next;
  }

  // Whether the host may learn a round later what became of this one: another round comes for sure, and nobody looks at
  // the weights or at a prediction until then.
  bool may_be_late(const Reduced& reduced) const {
    if (!lags_) return false;
    bool all_ended = true;
    for (const Gradient& g : reduced.gradients) {
      if (g.batch->cut) return false;
      all_ended = all_ended && std::ranges::all_of(g.batch->rows, [](const Tag& row) { return row.ended; });
    }
    const auto rests = [this](std::uint64_t step) { return control_.rests_after(step) || verifies_after(step); };
    return !all_ended && !rests(step_ + 1) && !rests(step_ + 2);
  }

  bool verifies_after(std::uint64_t step) const {
    const std::int64_t every = plan_.run.verify_every;
    return every > 0 && step % static_cast<std::uint64_t>(every) == 0;
  }

  static void add_rows(const Reduced& reduced, std::vector<Tag>& rows) {
    for (const Gradient& g : reduced.gradients) rows.insert(rows.end(), g.batch->rows.begin(), g.batch->rows.end());
  }

  void learn_means(const Batch& batch) {
    const std::vector<double> targets = tensor_values(batch.y);
    const std::size_t width = targets.size() / batch.rows.size();
    for (std::size_t i = 0; i < batch.rows.size(); ++i)
      means_.add(batch.rows[i].stream, std::span(targets).subspan(i * width, width), batch.rows[i].weight);
  }

  // A round that was issued after the last one that counts.
  void drop(const Reduced& reduced) {
    std::vector<Tag> rows;
    add_rows(reduced, rows);
    roll_back();
    control_.dropped(rows);
  }

  double rate() const { return params_.schedule.rate(params_.lr, step_, plan_.run.steps); }

  RunControl::Next skip(const Reduced& reduced) {
    if (devices_ == nullptr) roll_back();  // devices have done so, and may be in the next round
    const std::string what = blame(reduced);
    if (++skips_ == kMostSkips) {
      throw Error(
          Exit::kNonFinite,
          fmt::format("{}\n  {} steps in a row were skipped; look at these samples, or lower the optimizer's lr", what,
                      kMostSkips));
    }
    return control_.skipped(what + "\n  the step was skipped", rows_, stop_);
  }

  RunControl::Next apply(Reduced& reduced, double norm) {
    StepRecord& record = applied_.emplace_back();
    record.lr = rate();
    if (devices_ == nullptr) {
      if (reduced.n > 0) optimizers_.step(record.lr);
      recurrent_.commit();
      replicas_.buffers().commit([this](const at::Tensor& rows) { return world_.gather_rows(rows); });
    }
    ++step_;
    skips_ = 0;
    if (verifies_after(step_)) {
      if (devices_ != nullptr) devices_->wait();
      communicator_.verify(replicas_);
    }
    record.step = step_;
    record.loss = reduced.loss;
    record.lanes = std::move(reduced.lanes);
    record.streams = std::move(reduced.streams);
    record.n = reduced.n;
    record.grad_norm = norm;
    return control_.after_step(record, rows_, stop_);
  }

  // Not where predictions of the training are looked at, a round may end its step early, or another process may be the
  // one to end the run.
  static bool lags(const Plan& plan, const World& world) {
    const bool predicts = std::ranges::any_of(plan.with_role(Role::kCompute),
                                              [&](int lane) { return !plan.nodes[lane].outputs[1].empty(); });
    const bool ends_early = plan.run.accumulate > 1 && plan.run.non_finite == "skip";
    return !predicts && !ends_early && world.size() == 1;
  }

  // A NaN has a sign, which means nothing.
  static std::string number(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

  std::string blame(const LaneTable::Part& lane, const Batch& batch, const Reduced& reduced) const {
    const std::optional<double> loss = reduced.lanes[lane.index];
    std::string rows;
    for (const Tag& row : batch.rows) {
      if (std::ranges::count(lane.streams, row.stream) == 0) continue;
      rows += fmt::format("; stream {}, run {}, seq {}", streams_.name(row.stream), row.run, row.seq);
      if (const auto& own = reduced.streams[row.stream]) rows += ", loss " + number(*own);
    }
    return fmt::format("\n  {}: loss {}{}", lane.text(), loss ? number(*loss) : "none", rows);
  }

  // Each process knows the samples of its own lanes.
  std::string blame(const Reduced& reduced) const {
    std::string text = fmt::format("step {}: the loss or the gradient is not finite", step_ + 1);
    if (reduced.non_finite.empty()) text += " once the lanes are added up, though it is in each of them";
    std::string own;
    for (const int lane : reduced.non_finite) {
      if (!lanes_.own().holds(lane)) continue;
      const Gradient& gradient = reduced.gradients[lane - lanes_.own().begin];
      std::span<const LaneTable::Part> parts = lanes_.parts(lane);
      for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
        if (gradient.non_finite.empty() || std::ranges::count(gradient.non_finite, p) > 0)
          own += blame(parts[p], *gradient.batch, reduced);
      }
    }
    for (const std::string& lines : world_.gather(own)) text += lines;
    return text;
  }

  const Params params_;
  const Plan& plan_;
  const StreamTable& streams_;
  const LaneTable& lanes_;
  World& world_;
  Communicator& communicator_;
  Replicas& replicas_;
  Optimizers& optimizers_;
  RecurrentState& recurrent_;
  TargetMeans& means_;
  RunControl& control_;
  DeviceTraining* const devices_;       // null: lanes are on the host
  const bool lags_;                     // rounds may be told late
  std::optional<Reduced> late_;         // a round whose outcome is on its way from the devices
  std::uint64_t step_ = 0, round_ = 0;  // applied; taken, of the whole training
  int skips_ = 0;                       // since the last step that was applied
  StepRecords applied_;                 // in this firing
  std::vector<Tag> rows_;               // of this step's rounds so far
  bool stop_ = false;                   // a round of this step asked for it
};

void infer(InferContext& context) {
  const std::string problem = context.params<OptimizerParams>().schedule.problem(context.plan.run.steps);
  if (!problem.empty()) context.problem(problem, "schedule");
  context.node.signatures = {context.inputs[0], Signature{}};
}

}  // namespace

NodeType optimizer() {
  NodeType type = node_type<Optimizer>("optimizer", "steps the weights by the reduced gradient", Role::kOptimizer,
                                       {{"reduced", "reduced"}}, {{"weights", "weights"}, {"step", "step"}}, infer);
  type.closes_cycles = true;
  type.may_wait = true;  // for other processes
  return type;
}

}  // namespace lanewise
