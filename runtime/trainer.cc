#include "runtime/trainer.h"

#include <ATen/Parallel.h>

#include <csignal>
#include <thread>

#include "graph/dump.h"
#include "runtime/communicator.h"
#include "runtime/fit.h"
#include "runtime/ledger.h"
#include "runtime/progress.h"
#include "runtime/random.h"
#include "runtime/replica.h"
#include "runtime/report.h"
#include "runtime/run_directory.h"
#include "runtime/safetensors.h"
#include "runtime/scoreboard.h"
#include "runtime/services.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

nlohmann::ordered_json number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

// One thread an operation: the lanes are what runs in parallel. The setting is a thread's own.
void use_one_thread() { at::set_num_threads(1); }

// The replicas of a plan's one model, one lane a compute node.
std::unique_ptr<Replicas> make_replicas(const Plan& plan, const StreamTable& streams) {
  const std::vector<int> lanes = plan.with_role(Role::kCompute);
  if (lanes.empty() || plan.with_role(Role::kOptimizer).empty()) {
    throw Error(Exit::kPipeline, "the pipeline trains nothing: it needs compute nodes, a reduction and an optimizer");
  }
  const PlanNode& lane = plan.nodes[lanes.front()];
  const PlanEdge& edge = plan.edges[lane.inputs[0]];
  const Signature& batch = plan.nodes[edge.from].signatures[edge.from_port];
  const Signature& prediction = lane.signatures[1];
  if (!batch.x || !prediction.y) {
    throw Error(Exit::kPipeline, fmt::format("{}: the shapes of its samples are not known before the run", lane.id));
  }
  const PlanModel& model = plan.model(lane.params["model"].get<std::string>());
  const auto type = std::ranges::find(model_types(), model.type, &ModelType::name);
  return std::make_unique<Replicas>(
      [&] { return type->make(model.params, *batch.x, *prediction.y); }, model.name,
      ReplicaOptions{.dtype = plan.run.dtype == "float64" ? at::kDouble : at::kFloat,
                     .per_device = plan.run.weights == "per_device",
                     .lanes = static_cast<int>(lanes.size()),
                     .streams = streams.size(),
                     .seed = plan.run.seed});
}

}  // namespace

class Trainer::Impl final : public RunControl {
 public:
  Impl(Plans plans, RunOptions options)
      : plans_(std::move(plans)),
        options_(std::move(options)),
        threads_(plans_.train.run.threads > 0 ? static_cast<int>(plans_.train.run.threads)
                                              : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))),
        started_(Clock::now()),
        streams_(plans_.train),
        ledger_(streams_.size()),
        means_(streams_.size()) {}

  nlohmann::ordered_json run() {
    Exit exit = Exit::kDone;
    try {
      prepare();
      train();
      finish();
      if (options_.signal() != 0) exit = Exit::kStopped;
    } catch (const Error& error) {
      exit = error.exit();
      reason_ = error.what();
    } catch (const std::bad_alloc&) {
      exit = Exit::kInternal;
      reason_ = "out of memory";
    } catch (const std::exception& error) {
      exit = Exit::kInternal;
      reason_ = error.what();
    }
    progress_.reset();
    return leave_report(exit);
  }

  const FlowReport& flow_report() const { return flow_report_; }
  const Plan& plan() const { return plans_.train; }

  // RunControl.

  bool stop_wanted() const override { return options_.signal() != 0 || time_is_over(); }

  Next after_step(std::shared_ptr<const StepRecord> record, const Reduced& reduced) override {
    const RunSettings& run = plans_.train.run;
    for (const Gradient& g : reduced.gradients) {
      for (const Tag& row : g.rows) {
        ledger_.use(row);
        last_run_ = std::max(last_run_, row.run);
      }
    }
    const auto step = static_cast<std::int64_t>(record->step);
    if (step % run.metrics_every == 0) {
      directory_->append("metrics.jsonl", metrics_line(*record));
      directory_->append("timings.jsonl", fmt::format("{{\"step\":{},\"seconds\":{:.6f}}}\n", step, seconds_since(training_)));
    }
    const std::lock_guard lock(mutex_);
    if (!first_loss_) first_loss_ = record->loss;
    if (record->loss) last_loss_ = record->loss;
    samples_ += reduced.gradients.size() * reduced.gradients.front().rows.size();
    if (last_run_ > 0 && steps_per_pass_ == 0) steps_per_pass_ = static_cast<double>(step - 1);
    directory_->step.store(record->step);

    if (reduced.stop) {
      reason_ = options_.signal() != 0 ? fmt::format("stopped by {} after step {}", signal_name(), step)
                                       : fmt::format("{} minutes are over", *run.minutes);
      return Next::kFinish;
    }
    if (run.steps && step >= *run.steps) {
      reason_ = fmt::format("all {} steps are done", step);
      return Next::kFinish;
    }
    const bool due = plans_.evaluate && plans_.train.evaluate->every && step % *plans_.train.evaluate->every == 0;
    return due ? Next::kPause : Next::kGoOn;
  }

  void not_applied(const Reduced& reduced) override {
    std::string cut_by;
    for (const Gradient& g : reduced.gradients) {
      for (const Tag& row : g.rows) ledger_.leave(row);
      if (cut_by.empty()) cut_by = g.cut_by;
    }
    const std::lock_guard lock(mutex_);
    if (reduced.cut) {
      reason_ = fmt::format("stream {} ended after {} samples", cut_by, ledger_.used(streams_.index(cut_by)));
    } else if (plans_.train.end_rule == "restart") {
      reason_ = fmt::format("every stream was read {} times", *plans_.train.run.passes);
    } else {
      reason_ = "every stream has ended";
    }
  }

 private:
  // Everything that a run needs before its first step. What can be wrong is wrong here.
  void prepare() {
    use_one_thread();
    progress_ = std::make_unique<Progress>(Progress::Options{.quiet = options_.quiet,
                                                             .terminal = options_.terminal,
                                                             .stall_s = plans_.train.run.stall_s,
                                                             .say = options_.say,
                                                             .state = [this] { return progress_state(); }});
    directory_ = std::make_unique<RunDirectory>(options_.directory, [this](const std::string& line) { progress_->say(line); });
    directory_->write("manifest.json",
                      manifest(plans_.train, plans_.evaluate ? &*plans_.evaluate : nullptr, options_.overrides, threads_).dump(2) + "\n");
    for (const std::string& note : plans_.train.notes) progress_->say("note: " + note);

    rules_.dtype = plans_.train.run.dtype == "float64" ? at::kDouble : at::kFloat;
    rules_.end_rule = plans_.train.end_rule;
    rules_.passes = plans_.train.run.passes;
    seed_.seed = plans_.train.run.seed;
    services_.add(rules_);
    services_.add(seed_);
    services_.add(streams_);
    services_.add(normalization_);
    services_.add(*directory_);
    services_.add<RunControl>(*this);
    if (plans_.evaluate) services_.add(means_);
    fit_normalizers(plans_.train, services_, normalization_);
    units_ = std::make_unique<Units>(plans_.train, streams_, normalization_);
    services_.add(*units_);
    replicas_ = make_replicas(plans_.train, streams_);
    services_.add(*replicas_);
    communicator_ = make_local_communicator();
    services_.add(*communicator_);
  }

  void train() {
    training_ = Clock::now();
    Flow flow(plans_.train, make_nodes(plans_.train, services_), flow_options());
    progress_->watch(plans_.train, flow);
    // Whatever ends the training, its counters go into the report.
    try {
      while (flow.run() == Flow::Outcome::kPaused) {
        progress_->unwatch();
        evaluate();
        progress_->watch(plans_.train, flow);
      }
      close(flow);
      ledger_.check(streams_);
    } catch (...) {
      close(flow);
      throw;
    }
  }

  void close(const Flow& flow) {
    progress_->unwatch();
    seconds_ = seconds_since(training_);
    flow_report_ = flow.report();
    if (closed_) return;
    closed_ = true;
    ledger_.close(plans_.train, flow, streams_);
  }

  void finish() {
    if (plans_.evaluate && options_.signal() == 0) evaluate();
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < replicas_->specs().size(); ++i) {
      tensors.push_back({replicas_->specs()[i].name, replicas_->parameter(static_cast<int>(i))});
    }
    if (!options_.directory.empty()) write_safetensors(options_.directory + "/weights.safetensors", tensors);
    directory_->close();
  }

  // One evaluation, between two steps: a flow of its own over the evaluation's plan, the weights read in place.
  void evaluate() {
    const std::uint64_t step = directory_->step.load();
    if (evaluated_at_ == step && !evaluation_.is_null()) return;  // the last step was one to evaluate after, too
    const Plan& plan = *plans_.evaluate;
    SourceRules rules = rules_;
    rules.end_rule = plan.end_rule;
    rules.passes = std::nullopt;
    rules.evaluating = true;
    RandomSeed seed{seed_.seed, "evaluate"};
    Scoreboard board(streams_, *units_, means_, [this] { return options_.signal() != 0; });
    Services services = services_;
    services.add(rules);
    services.add(seed);
    services.add(board);
    Ledger ledger(streams_.size());
    try {
      Flow flow(plan, make_nodes(plan, services), flow_options());
      flow.run();
      ledger.close(plan, flow, streams_);
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("evaluation after step {}: {}", step, error.what()));
    }
    if (board.stop_wanted()) return;  // broken off by a signal: no result
    ledger.take(board);
    ledger.check(streams_);
    nlohmann::ordered_json line = {{"step", step}};
    line.update(board.result());
    evaluation_ = line;
    evaluated_at_ = step;
    directory_->append("evaluations.jsonl", line.dump() + "\n");
    const auto text = [](const nlohmann::ordered_json& value) { return value.is_null() ? "none" : fmt::format("{:.4f}", value.get<double>()); };
    if (!options_.quiet) {
      progress_->say(fmt::format("evaluation after step {}: loss {}, mse {} (last value {}, training mean {}), {} targets", step,
                                 text(line["loss"]), text(line["mse"]), text(line["baselines"]["last"]),
                                 text(line["baselines"]["mean"]), line["n"].get<double>()));
    }
  }

  FlowOptions flow_options() const { return {.threads = threads_, .pin = options_.pin, .on_worker_start = use_one_thread}; }

  bool time_is_over() const {
    return plans_.train.run.minutes && seconds_since(training_) >= *plans_.train.run.minutes * 60;
  }

  std::string signal_name() const {
    const char* name = sigabbrev_np(options_.signal());
    return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", options_.signal());
  }

  ProgressState progress_state() {
    const std::lock_guard lock(mutex_);
    ProgressState state{.step = directory_->step.load(), .samples = samples_, .loss = last_loss_};
    const RunSettings& run = plans_.train.run;
    if (run.steps) state.steps_expected = static_cast<double>(*run.steps);
    if (run.passes && steps_per_pass_ > 0) {
      const double steps = steps_per_pass_ * static_cast<double>(*run.passes);
      state.steps_expected = std::min(steps, state.steps_expected.value_or(steps));
    }
    if (run.minutes) state.seconds_expected = *run.minutes * 60;
    return state;
  }

  nlohmann::ordered_json leave_report(Exit exit) {
    nlohmann::ordered_json report = make_report(exit);
    try {
      if (directory_ == nullptr) return report;
      directory_->flush();
      directory_->write("graph.dot", dump_dot(plans_.train, flow_report_.nodes.empty() ? nullptr : &flow_report_));
      directory_->write("report.json", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    } catch (const Error& error) {
      // The first error stays the reason; only a run that was fine until here fails by this.
      if (exit == Exit::kDone || exit == Exit::kStopped) {
        report["exit"] = static_cast<int>(error.exit());
        report["reason"] = error.what();
      }
    }
    return report;
  }

  nlohmann::ordered_json make_report(Exit exit) {
    const std::uint64_t steps = directory_ != nullptr ? directory_->step.load() : 0;
    nlohmann::ordered_json streams = nlohmann::ordered_json::object();
    std::uint64_t trained = 0;
    for (int s = 0; s < streams_.size(); ++s) {
      const StreamAccount& a = ledger_.account(s);
      trained += a.used;
      streams[streams_.name(s)] = {{"produced", a.produced}, {"trained", a.used}, {"absorbed", a.absorbed},
                                   {"fillers", a.fillers}, {"left", a.left}};
    }
    const auto rate = [&](double n) { return seconds_ > 0 ? nlohmann::ordered_json(n / seconds_) : nullptr; };
    nlohmann::ordered_json report = {{"exit", static_cast<int>(exit)}, {"reason", reason_}};
    report["name"] = plans_.train.name;
    report["digest"] = plans_.train.digest;
    report["steps"] = steps;
    report["samples"] = std::move(streams);
    report["loss"] = {{"first", number(first_loss_)}, {"last", number(last_loss_)}};
    report["evaluation"] = evaluation_;
    report["weights_sha256"] = replicas_ != nullptr ? nlohmann::ordered_json(replicas_->weights_sha256()) : nullptr;
    report["threads"] = threads_;
    report["seconds"] = {{"all", seconds_since(started_)}, {"training", seconds_}};
    report["steps_per_second"] = rate(static_cast<double>(steps));
    report["samples_per_second"] = rate(static_cast<double>(trained));
    report["peak_rss_bytes"] = peak_rss_bytes();
    if (!flow_report_.nodes.empty()) {
      report["in_flight"] = in_flight_json(plans_.train, flow_report_);
      report["nodes"] = nodes_json(flow_report_);
      report["edges"] = edges_json(flow_report_);
    }
    return report;
  }

  const Plans plans_;
  const RunOptions options_;
  const int threads_;
  const Clock::time_point started_;
  Clock::time_point training_ = started_;
  StreamTable streams_;
  SourceRules rules_;
  RandomSeed seed_;
  Normalization normalization_;
  Services services_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<Units> units_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Communicator> communicator_;
  Ledger ledger_;  // written by the optimizer's firings only, read when the flow rests
  TargetMeans means_;

  std::mutex mutex_;  // guards what the progress thread reads
  std::optional<double> first_loss_, last_loss_;
  std::uint64_t samples_ = 0, last_run_ = 0;
  double steps_per_pass_ = 0;
  std::string reason_;

  nlohmann::ordered_json evaluation_;
  std::uint64_t evaluated_at_ = 0;
  double seconds_ = 0;  // of training, evaluations included
  bool closed_ = false;
  FlowReport flow_report_;
};

Trainer::Trainer(Plans plans, RunOptions options)
    : impl_(std::make_unique<Impl>(std::move(plans), std::move(options))) {}
Trainer::~Trainer() = default;
nlohmann::ordered_json Trainer::run() { return impl_->run(); }
const FlowReport& Trainer::flow_report() const { return impl_->flow_report(); }
const Plan& Trainer::plan() const { return impl_->plan(); }

}  // namespace lanewise
