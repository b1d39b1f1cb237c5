#include "runtime/trainer.h"

#include <csignal>
#include <filesystem>
#include <limits>
#include <thread>

#include "graph/cut.h"
#include "graph/dump.h"
#include "runtime/archive.h"
#include "runtime/checkpoint_store.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/communicator.h"
#include "runtime/data_files.h"
#include "runtime/device.h"
#include "runtime/devices/device_training.h"
#include "runtime/directory_lock.h"
#include "runtime/dropout.h"
#include "runtime/evaluation.h"
#include "runtime/exchange.h"
#include "runtime/fit.h"
#include "runtime/generators/generator_log.h"
#include "runtime/generators/generators.h"
#include "runtime/lane_table.h"
#include "runtime/ledger.h"
#include "runtime/library_error.h"
#include "runtime/memory.h"
#include "runtime/packing.h"
#include "runtime/profiler.h"
#include "runtime/progress.h"
#include "runtime/random.h"
#include "runtime/report.h"
#include "runtime/run_directory.h"
#include "runtime/run_record.h"
#include "runtime/scoreboard.h"
#include "runtime/setup.h"
#include "runtime/snapshot.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostBetweenRecords = 64;  // samples
constexpr double kFlushPeriod = 1;                // seconds after which a reader of the metrics sees new lines

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

class Trainer::Impl final : public RunControl {
 public:
  Impl(Plans plans, RunOptions options)
      : plans_(std::move(plans)),
        options_(std::move(options)),
        world_(options_.world != nullptr ? *options_.world : alone_),
        threads_(plans_.train.run.threads > 0 ? static_cast<int>(plans_.train.run.threads)
                                              : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))),
        started_(Clock::now()),
        streams_(plans_.train),
        lanes_(plans_.train, streams_, world_.rank(), world_.size()),
        train_(own_part(plans_.train)),
        evaluate_(plans_.evaluate ? std::optional(own_part(*plans_.evaluate)) : std::nullopt),
        dropout_(plans_.train.run.seed, streams_),
        ledger_(streams_.size()),
        cursors_(streams_.size()),
        means_(streams_.size()),
        record_(streams_.size()) {}

  nlohmann::ordered_json run() {
    Exit exit = Exit::kDone;
    bool together = false;  // with the other processes, up to here
    try {
      prepare();
      train();
      finish();
      together = true;
      if (record_.stopped) exit = Exit::kStopped;
    } catch (const Error& error) {
      exit = error.exit();
      record_.reason = error.what();
      if (devices_ != nullptr && (exit == Exit::kPeer || exit == Exit::kDevice)) add_flight_record();
    } catch (const c10::AcceleratorError& error) {  // of a GPU, outside of its queues, as the next
      exit = Exit::kDevice;
      record_.reason = what_without_stack(error);
    } catch (const c10::OutOfMemoryError& error) {
      exit = Exit::kDevice;
      record_.reason = fmt::format("{}; {}", what_without_stack(error), kNeedsLess);
    } catch (const std::bad_alloc&) {
      exit = Exit::kInternal;
      record_.reason = "out of memory; a smaller model, fewer lanes or smaller capacities need less";
    } catch (const std::exception& error) {
      exit = Exit::kInternal;
      record_.reason = what_without_stack(error);
    } catch (...) {
      exit = Exit::kInternal;
      record_.reason = "something was thrown that is no exception; a plugin may be at fault";
    }
    nodes_.clear();
    generators_.reset();
    if (writer_ != nullptr) saves_ = writer_->times();
    writer_.reset();  // a save in progress is finished; what became of it was said, or is the reason already
    progress_.reset();
    if (!together) tell_failure(exit);
    exit = leave_report(exit);
    if (together) exit = leave_together(exit);
    return report_;
  }

  // RunControl.

  bool stop_wanted() const override { return options_.signal() != 0 || time_is_over(); }

  Next after_step(const StepRecord& record, std::span<const Tag> rows, bool stop) override {
    const RunSettings& run = plans_.train.run;
    std::uint64_t least_run = std::numeric_limits<std::uint64_t>::max(), samples = 0;
    for (const Tag& row : rows) {
      ledger_.use(row);
      cursors_.take(row);
      least_run = std::min(least_run, row.run);
      samples += row.filler ? 0 : 1;
    }
    const auto step = static_cast<std::int64_t>(record.step);
    {
      const std::lock_guard lock(mutex_);
      if (!record_.first_loss) record_.first_loss = record.loss;
      if (record.loss) record_.last_loss = record.loss;
      record_.samples += samples;
      if (least_run > 0 && record_.steps_per_pass == 0)
        record_.steps_per_pass = static_cast<double>(step - 1);  // the longest stream's
      directory_->step.store(record.step);
    }
    if (step % run.metrics_every == 0) {
      const double seconds = training_seconds();
      directory_->append("metrics.jsonl", metrics_line(record));
      directory_->append("timings.jsonl", fmt::format("{{\"step\":{},\"seconds\":{:.6f}}}\n", step, seconds));
      if (seconds - flushed_ >= kFlushPeriod) {
        flushed_ = seconds;
        for (const char* const own : {"metrics.jsonl", "timings.jsonl"}) directory_->flush(own);
      }
    }
    if (options_.profiler != nullptr && options_.profiler->after_step(record_.samples)) stop = true;
    const std::lock_guard lock(mutex_);
    return next(stop);
  }

  Next skipped(const std::string& what, std::span<const Tag> rows, bool stop) override {
    for (const Tag& row : rows) {
      ledger_.leave(row);
      cursors_.take(row);
    }
    record_.skip(what);
    if (world_.first()) progress_->say("note: " + what);
    const std::lock_guard lock(mutex_);
    if (!stop) return Next::kGoOn;
    return next(stop);
  }

  bool rests_after(std::uint64_t step) const override {
    const auto& steps = plans_.train.run.steps;
    return (steps && step >= static_cast<std::uint64_t>(*steps)) || evaluation_due(step) || checkpoint_due(step);
  }

  void dropped(std::span<const Tag> rows) override {
    for (const Tag& row : rows) ledger_.leave(row);
  }

  void not_applied(const Reduced& reduced, std::span<const Tag> rows) override {
    for (const Tag& row : rows) ledger_.leave(row);
    std::string cut_by;
    for (const Gradient& g : reduced.gradients) {
      if (cut_by.empty()) cut_by = g.batch->cut_by;
    }
    const std::lock_guard lock(mutex_);
    if (reduced.cut && cut_by.empty()) return;  // in another process, which says so
    if (reduced.cut) {
      record_.reason =
          fmt::format("stream {} ended after {} samples", cut_by, cursors_.of(streams_.index(cut_by)).consumed);
      record_.ended_by = cut_by;
    } else if (plans_.train.end_rule == "restart") {
      record_.reason = fmt::format("every stream was read {} times", *plans_.train.run.passes);
    } else {
      record_.reason = "every stream has ended";
    }
  }

 private:
  // Everything that a run needs before its first step. What can be wrong is wrong here.
  void prepare() {
    use_one_thread();
    progress_ = std::make_unique<Progress>(
        Progress::Options{.quiet = options_.quiet || !world_.first(),
                          .terminal = options_.terminal,
                          .stall_s = plans_.train.run.stall_s,
                          .say = options_.say,
                          .draw = options_.draw,
                          .state = [this] { return progress_state(); },
                          .stop_wanted = [this] { return world_.break_off(options_.signal() != 0); },
                          .status_wanted = options_.status_wanted});
    accelerator_ = open_accelerator(plans_.train);  // before the directory: what is refused here leaves none
    if (accelerator_ != nullptr) check_gpus_apart(world_, plans_.train, lanes_.own(), *accelerator_);
    const std::optional<Checkpoint> checkpoint = open_directory();
    if (world_.first()) {
      for (const std::string& note : plans_.train.notes) progress_->say("note: " + note);
      if (saves()) {
        for (const std::string& part : inexact_parts(plans_.train)) progress_->say("note: " + part);
      }
    }

    rules_ = source_rules(plans_.train);
    if (saves()) rules_.record_every = record_interval();
    seed_.seed = plans_.train.run.seed;
    services_.add(rules_);
    services_.add(seed_);
    services_.add(streams_);
    services_.add(lanes_);
    services_.add(world_);
    services_.add(normalization_);
    services_.add(dropout_);
    services_.add(*directory_);
    services_.add<RunControl>(*this);
    services_.add(*generators_);
    services_.add(means_);
    services_.add(archives_);
    if (options_.profiler != nullptr) services_.add(options_.profiler->lane_times());
    replicas_ = make_replicas(plans_.train, streams_, lanes_.own(), accelerator_.get());
    services_.add(*replicas_);
    const PlanNode& optimizer = plans_.train.nodes[plans_.train.with_role(Role::kOptimizer).front()];
    optimizers_ = std::make_unique<Optimizers>(read_checked<OptimizerParams>(optimizer.params), *replicas_);
    services_.add(*optimizers_);
    recurrent_ = std::make_unique<RecurrentState>(streams_.size(), replicas_->any_model().state_size(), rules_.dtype);
    services_.add(*recurrent_);
    if (accelerator_ != nullptr) {
      devices_ = std::make_unique<DeviceTraining>(DeviceTraining::Parts{
          *accelerator_, plans_.train, *replicas_, *optimizers_, lanes_, dropout_, world_, options_.peer_timeout});
      services_.add(*devices_);
      services_.add<Communicator>(devices_->reduction());
    } else {
      communicator_ = world_.communicator(plans_.train.reduction());
      services_.add(*communicator_);
    }
    if (checkpoint) {
      restore(*checkpoint);
    } else {
      fit_normalizers(train_, services_, normalization_, [this] { stop_before_first_step(); });
    }
    if (const std::string where = services_.get<Communicator>().apart(*replicas_); !where.empty()) {
      throw Error(Exit::kPeer, fmt::format("the processes begin with different weights: {}; give all of them the same "
                                           "file of initial weights (a model's init)",
                                           where));
    }
    units_ = std::make_unique<Units>(plans_.train, streams_, normalization_);
    services_.add(*units_);
    nodes_ = make_nodes(train_, services_);
    if (checkpoint) restore_nodes(parts(), *checkpoint, nodes_);
    if (accelerator_ != nullptr) accelerator_->settle();
    directory_->begin();
    if (options_.resume && world_.first()) write_manifest();  // of what is known to go on
    begun_ = true;
  }

  void write_manifest() { directory_->write("manifest.json", manifest(plans_, threads_).dump(2) + "\n"); }

  // Opens the run directory, which is the first process's; the checkpoint to go on from, if any.
  std::optional<Checkpoint> open_directory() {
    const auto say = [this](const std::string& line) {
      if (world_.first()) progress_->say(line);
    };
    const bool writes = saves() && world_.first();
    if (!writes) directory_ = std::make_unique<RunDirectory>("", say);
    if (!saves()) return std::nullopt;
    std::optional<Checkpoint> checkpoint;
    if (writes) checkpoint = lock_directory(say);
    data_ = data_files_of_all(world_, train_);
    if (writes) open_files(checkpoint, say);
    return checkpoint_of_first(world_, std::move(checkpoint));
  }

  using Say = std::function<void(const std::string&)>;

  // The newest checkpoint, where the run is resumed.
  std::optional<Checkpoint> lock_directory(const Say& say) {
    const std::string& path = options_.directory;
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
      throw Error(Exit::kCheckpoint, fmt::format("cannot make the run directory {}: {}; choose another with --out",
                                                 path, error.message()));
    }
    lock_ = std::make_unique<DirectoryLock>(path);
    if (!options_.resume && std::filesystem::exists(path + "/manifest.json")) {
      throw Error(Exit::kCommandLine, path + " already holds a run; name another directory");
    }
    const CheckpointRules& rules = plans_.train.run.checkpoint;
    store_ = std::make_unique<CheckpointStore>(
        path, CheckpointSettings{.keep = rules.keep, .keep_best = rules.keep_best}, say);
    return options_.resume ? store_->newest() : std::nullopt;
  }

  void open_files(const std::optional<Checkpoint>& checkpoint, const Say& say) {
    RunDirectory::Lengths kept;
    if (checkpoint) {
      check_data_files(checkpoint->manifest.at("data"), data_);
      kept = checkpoint->manifest.at("lengths").get<RunDirectory::Lengths>();
    }
    directory_ = std::make_unique<RunDirectory>(options_.directory, say, std::move(kept));
    if (!options_.resume) write_manifest();
    writer_ = std::make_unique<CheckpointWriter>(
        [this](const Checkpoint& c, std::optional<double> score) {
          directory_->sync(c.manifest.at("lengths").get<RunDirectory::Lengths>());
          store_->save(c, score);
        },
        plans_.train.run.checkpoint.on_error == "stop" ? OnError::kStop : OnError::kContinue,
        [say](const std::string& what) { say("warning: no checkpoint was saved: " + what + "; the run goes on"); });
  }

  void train() {
    record_.resumed_at = directory_->step.load();
    training_ = Clock::now();
    Flow flow(train_, std::move(nodes_), flow_options());
    if (options_.profiler != nullptr) options_.profiler->begin(flow);
    // Whatever ends the training, its counters go into the report.
    try {
      if (record_.resumed_at > 0 && evaluation_due()) evaluate();  // the run was stopped before it could
      progress_->watch(train_, &flow);
      // An evaluation that was broken off is the first thing that a resumed run does.
      while (!record_.stopped && !is_over() && flow.run() == Flow::Outcome::kPaused) {
        progress_->watch(train_, nullptr);
        if (devices_ != nullptr) devices_->wait();
        if (evaluation_due()) evaluate();
        if (checkpoint_due()) save(flow);
        progress_->watch(train_, &flow);
      }
      if (devices_ != nullptr) devices_->wait();
      close(flow);
      ledger_.check(streams_);
      record_.settle(world_);
    } catch (const Error& error) {
      close(flow);
      if (error.exit() == Exit::kStopped && world_.size() == 1 && taps_are_done(flow) && devices_are_told()) save(flow);
      throw;
    } catch (...) {
      close(flow);
      throw;
    }
    if (plans_.evaluate && !record_.stopped) evaluate();
    save(flow);
    if (record_.ended_by.empty() || end_rule_of(plans_.train, *plans_.train.find(record_.ended_by)) != "error") return;
    throw Error(Exit::kData, record_.reason + ", and its end is an error (on_end)");
  }

  void close(const Flow& flow) {
    progress_->watch(train_, nullptr);
    seconds_ = training_seconds();
    flow_report_ = flow.report();
    memory_ = memory_json(train_, flow_report_, *replicas_, *optimizers_);
    if (closed_) return;
    closed_ = true;
    ledger_.close(train_, flow, streams_);
  }

  void finish() {
    replicas_->buffers().share([this](const at::Tensor& rows) { return world_.gather_rows(rows); });
    if (writer_ != nullptr) writer_->wait();
    flow_report_ = reports_of_all(world_, lanes_, plans_.train, flow_report_, ledger_);
    all_told_ = true;
    {
      const std::lock_guard lock(mutex_);
      record_.samples = record_.samples_before;
      for (int s = 0; s < streams_.size(); ++s) record_.samples += ledger_.used(s);
    }
    if (store_ != nullptr) write_safetensors(options_.directory + "/weights.safetensors", replicas_->state_dict());
    directory_->close();
  }

  // What to do after the step that directory_->step names, or after one that was skipped. Requires mutex_.
  Next next(bool stop) {
    const RunSettings& run = plans_.train.run;
    const auto step = static_cast<std::int64_t>(directory_->step.load());
    if (stop) {
      record_.stopped = options_.signal() != 0;
      if (record_.stopped) {
        record_.reason = fmt::format("stopped by {} after step {}", signal_name(), step);
      } else if (time_is_over()) {
        record_.reason = fmt::format("{} minutes are over", *run.minutes);
      }  // else another process, which will say why, or the profiler asked for it
      return Next::kFinish;
    }
    if (run.steps && step >= *run.steps) {
      record_.reason = fmt::format("all {} steps are done", step);
      return Next::kFinish;
    }
    return evaluation_due() || checkpoint_due() ? Next::kPause : Next::kGoOn;
  }

  // A resumed run may have nothing left to do.
  bool is_over() {
    if (record_.resumed_at == 0 || directory_->step.load() != record_.resumed_at) return false;
    const bool stop = any_process(world_, stop_wanted());
    const std::lock_guard lock(mutex_);
    return next(stop) == Next::kFinish;
  }

  static bool falls_on(std::optional<std::int64_t> every, std::uint64_t step) {
    return every && step > 0 && step % static_cast<std::uint64_t>(*every) == 0;
  }
  bool evaluation_due(std::uint64_t step) const {
    return plans_.evaluate && falls_on(plans_.train.evaluate->every, step);
  }
  bool evaluation_due() const { return evaluation_due(directory_->step.load()); }
  bool checkpoint_due(std::uint64_t step) const { return saves() && falls_on(plans_.train.run.checkpoint.every, step); }
  bool checkpoint_due() const { return checkpoint_due(directory_->step.load()); }

  // There is a directory to save to; only the first process writes there.
  bool saves() const { return !options_.directory.empty(); }
  Plan own_part(const Plan& whole) const {
    return world_.size() == 1 ? whole : cut(whole, lanes_.own(), world_.first());
  }
  void add_flight_record() {
    const std::string lines = devices_->flight_record();
    if (lines.empty()) return;
    if (!record_.reason.ends_with('\n')) record_.reason += '\n';
    record_.reason.append(lines, 0, lines.size() - 1);
  }
  void tell_failure(Exit exit) {
    world_.tell_failure(exit, fmt::format("{}: {}", lanes_.process_text(world_.rank()), record_.reason));
  }

  // The first process has written its last. Where it could not, that is how the others end, too.
  Exit leave_together(Exit exit) {
    if (exit != Exit::kDone && exit != Exit::kStopped) {
      tell_failure(exit);
      return exit;
    }
    try {
      world_.gather("");
      return exit;
    } catch (const Error& error) {
      record_.reason = error.what();
      return leave_report(error.exit());
    }
  }

  // One evaluation, between two steps: a flow of its own over the evaluation's plan, the weights read in place.
  void evaluate() {
    const std::uint64_t step = directory_->step.load();
    if (record_.evaluated_at == step && !record_.evaluation.is_null())
      return;  // the last step was one to evaluate after, too
    Units units(*evaluate_, streams_, normalization_);
    Scoreboard board(streams_, units, means_, [this] { return world_.break_off(options_.signal() != 0); });
    Ledger ledger(streams_.size());
    const RunDirectory::Lengths before = directory_->flush();
    try {
      run_evaluation(*evaluate_, services_, board, ledger,
                     {.flow = flow_options(), .watch = [this](Flow* flow) { progress_->watch(*evaluate_, flow); }});
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("evaluation after step {}: {}", step, error.what()));
    }
    if (any_process(world_, board.stop_wanted())) {  // broken off: no result, and no line of a tap
      directory_->cut(before);
      record_.stopped = options_.signal() != 0;
      if (record_.stopped)
        record_.reason = fmt::format("stopped by {} during the evaluation after step {}", signal_name(), step);
      record_.settle(world_);
      return;
    }
    for (int s = 0; s < streams_.size(); ++s) ledger.take(s, board.evaluated(s), board.fillers(s));
    ledger.check(streams_);
    board.share(world_, lanes_);
    nlohmann::ordered_json line = {{"step", step}};
    line.update(board.result());
    record_.evaluation = line;
    record_.evaluated_at = step;
    directory_->append("evaluations.jsonl", line.dump() + "\n");
    if (!options_.quiet && world_.first())
      progress_->say(fmt::format("evaluation after step {}: {}", step, evaluation_text(line)));
  }

  // A checkpoint of the last step, while the flow rests. The writer works on while the training goes on.
  void save(const Flow& flow) {
    if (!saves() || saved_at_ == directory_->step.load()) return;
    const std::uint64_t step = directory_->step.load();
    if (devices_ != nullptr) devices_->save_state(*recurrent_);
    Checkpoint checkpoint = take_snapshot(parts(), flow, step);
    saved_at_ = step;
    nlohmann::ordered_json& manifest = checkpoint.manifest;
    std::vector<std::uint64_t> trained = record_.trained_before;
    for (int s = 0; s < streams_.size(); ++s) trained[s] += ledger_.used(s);
    trained = by_stream(world_, lanes_, trained);
    if (!world_.first()) return;
    manifest["data"] = data_;
    manifest["lengths"] = directory_->flush();
    manifest.update(record_.saved(trained, training_seconds()));
    const bool scored = record_.evaluated_at == step && !record_.evaluation.is_null();
    writer_->save(std::move(checkpoint), scored ? number_in(record_.evaluation.at("mse")) : std::nullopt);
  }

  void restore(const Checkpoint& checkpoint) {
    restore_parts(parts(), checkpoint);
    if (devices_ != nullptr) devices_->load_state(*recurrent_);
    directory_->step.store(checkpoint.step);
    saved_at_ = checkpoint.step;
    record_.restore(checkpoint.manifest);
    if (world_.first()) progress_->say(fmt::format("goes on after step {}", checkpoint.step));
  }

  TrainingParts parts() {
    return {train_, streams_, *replicas_, *optimizers_, *recurrent_, normalization_, means_, cursors_, lanes_, world_};
  }

  // Samples from one record of a stream's nodes to the next: at least one a checkpoint.
  std::uint64_t record_interval() const {
    const RunSettings& run = plans_.train.run;
    const std::int64_t steps = std::min(run.checkpoint.every.value_or(kMostBetweenRecords), kMostBetweenRecords);
    return static_cast<std::uint64_t>(
        std::min(steps * std::min(run.accumulate * run.tbptt, kMostBetweenRecords), kMostBetweenRecords));
  }

  // All that was told of the last step has been written, so that the files are those of this step.
  bool taps_are_done(const Flow& flow) const {
    const FlowReport report = flow.report();
    for (std::size_t e = 0; e < report.edges.size(); ++e) {
      if (train_.nodes[train_.edges[e].to].type->role == Role::kSink && report.edges[e].left > 0) return false;
    }
    return true;
  }

  // Devices are done, and the host knows of every step that they have applied.
  bool devices_are_told() {
    if (devices_ == nullptr) return true;
    devices_->wait();
    return devices_->told_of_all();
  }

  void stop_before_first_step() const {
    if (options_.signal() != 0)
      throw Error(Exit::kStopped, fmt::format("stopped by {} before the first step", signal_name()));
  }

  FlowOptions flow_options() const {
    return {.threads = threads_, .pin = options_.pin, .on_worker_start = use_one_thread, .tell = what_without_stack};
  }

  // Of training, evaluations included, and of the runs that this one resumes.
  double training_seconds() const { return record_.seconds_before + seconds_since(training_); }
  bool time_is_over() const { return plans_.train.run.minutes && training_seconds() >= *plans_.train.run.minutes * 60; }

  std::string signal_name() const {
    const char* name = sigabbrev_np(options_.signal());
    return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", options_.signal());
  }

  ProgressState progress_state() {
    const std::lock_guard lock(mutex_);
    ProgressState state{.step = directory_ != nullptr ? directory_->step.load() : 0,
                        .samples = record_.samples,
                        .loss = record_.last_loss};
    state.step_before = record_.resumed_at;
    state.samples_before = record_.samples_before;
    const RunSettings& run = plans_.train.run;
    if (run.steps) state.steps_expected = static_cast<double>(*run.steps);
    if (run.passes && record_.steps_per_pass > 0) {
      const double steps = record_.steps_per_pass * static_cast<double>(*run.passes);
      state.steps_expected = std::min(steps, state.steps_expected.value_or(steps));
    }
    if (run.minutes) state.seconds_expected = *run.minutes * 60;
    return state;
  }

  // The report last, whatever else cannot be written. The first error stays the reason; only a run that was fine until
  // here fails by this. How it then has ended.
  Exit leave_report(Exit exit) {
    if (world_.size() > 1 && !all_told_ && !flow_report_.nodes.empty())  // without what the others know
      flow_report_ = merge_reports(plans_.train, {flow_report_});
    report_ = make_report(exit);
    const bool refused = directory_ == nullptr || (options_.resume && !begun_);  // what the run has left stays as it is
    if (refused) report_["begun"] = false;
    if (refused) return exit;
    const auto attempt = [&](const std::function<void()>& write) {
      try {
        write();
      } catch (const std::exception& error) {
        if (exit != Exit::kDone && exit != Exit::kStopped) return options_.say(std::string("warning: ") + error.what());
        const auto* const own = dynamic_cast<const Error*>(&error);
        exit = own != nullptr ? own->exit() : Exit::kInternal;
        record_.reason = error.what();
        report_["exit"] = static_cast<int>(exit);
        report_["reason"] = record_.reason;
      }
    };
    attempt([&] { directory_->flush(); });
    attempt([&] {
      directory_->write("graph.dot", dump_dot(plans_.train, flow_report_.nodes.empty() ? nullptr : &flow_report_));
    });
    attempt([&] {
      directory_->write("report.json", report_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    });
    return exit;
  }

  // Null where there are no weights, or a run that has failed may have left work on them to a GPU.
  nlohmann::ordered_json weights_sha256(Exit exit) const {
    const bool at_rest = devices_ == nullptr || exit == Exit::kDone || exit == Exit::kStopped;
    return replicas_ != nullptr && at_rest ? nlohmann::ordered_json(replicas_->weights_sha256()) : nullptr;
  }

  nlohmann::ordered_json make_report(Exit exit) {
    const std::uint64_t steps = directory_ != nullptr ? directory_->step.load() : 0;
    const auto rate = [&](double n) { return seconds_ > 0 ? nlohmann::ordered_json(n / seconds_) : nullptr; };
    nlohmann::ordered_json report = {{"exit", static_cast<int>(exit)}, {"reason", record_.reason}};
    report["name"] = plans_.train.name;
    report["digest"] = plans_.train.digest;
    report["steps"] = steps;
    report.update(record_.told(streams_, ledger_));
    report["weights_sha256"] = weights_sha256(exit);
    if (world_.size() > 1)
      report["processes"] = {{"count", world_.size()}, {"rank", world_.rank()}, {"all_told", all_told_}};
    if (world_.size() > 1 && steps > 0) report["processes"]["exchange"] = services_.get<Communicator>().through();
    if (devices_ != nullptr) {
      report["devices"] = devices_->told();
      report["exchange"] = devices_->reduction().through();
    }
    if (const std::vector<std::string> parts = inexact_parts(plans_.train); !parts.empty()) report["inexact"] = parts;
    report["threads"] = threads_;
    report["seconds"] = {{"all", seconds_since(started_)}, {"training", seconds_}};
    report["steps_per_second"] = rate(static_cast<double>(steps));
    report["samples_per_second"] = rate(static_cast<double>(record_.samples));
    report["memory"] = memory_;
    report["memory"]["peak_rss"] = peak_rss_bytes();
    report["checkpoints"] = checkpoints_json(saves_);
    if (!flow_report_.nodes.empty()) {
      report["in_flight"] = in_flight_json(plans_.train, flow_report_);
      report["nodes"] = nodes_json(flow_report_);
      report["edges"] = edges_json(flow_report_);
    }
    return report;
  }

  const Plans plans_;  // of all processes
  const RunOptions options_;
  World alone_;
  World& world_;
  const int threads_;
  const Clock::time_point started_;
  Clock::time_point training_ = started_;
  StreamTable streams_;
  LaneTable lanes_;
  GeneratorLog generator_log_{saves() && world_.first() ? options_.directory + "/generators.log" : "",
                              [this](const std::string& line) { progress_->say(line); }};
  std::unique_ptr<Generators> generators_ = std::make_unique<Generators>(Generators::Options{
      .say = [this](const std::string& line) { progress_->say(line); },
      .log = [this](const std::string& stream, std::string_view line) { generator_log_.write(stream, line); },
      .stop_wanted = [this] { return options_.signal() != 0; }});
  const Plan train_;  // of this process
  const std::optional<Plan> evaluate_;
  SourceRules rules_;
  RandomSeed seed_;
  Normalization normalization_;
  Dropout dropout_;
  Archives archives_;
  Services services_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<DirectoryLock> lock_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<CheckpointStore> store_;  // null: nothing is written
  std::unique_ptr<CheckpointWriter> writer_;
  CheckpointWriter::Times saves_;
  nlohmann::ordered_json data_;  // what the sources read
  std::unique_ptr<Units> units_;
  std::unique_ptr<Accelerator> accelerator_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Optimizers> optimizers_;
  std::unique_ptr<RecurrentState> recurrent_;
  std::unique_ptr<Communicator> communicator_;  // of lanes on the host
  std::unique_ptr<DeviceTraining> devices_;     // of lanes on GPUs
  std::vector<std::unique_ptr<Node>> nodes_;    // until the flow has them
  Ledger ledger_;  // with cursors_ and skips: written by the optimizer's firings only, read when the flow rests
  Cursors cursors_;
  TargetMeans means_;

  std::mutex mutex_;  // guards what the progress thread reads
  RunRecord record_;
  double flushed_ = 0;  // training_seconds() then
  std::optional<std::uint64_t> saved_at_;
  double seconds_ = 0;  // of training, evaluations included
  bool begun_ = false;  // all is ready for the first step
  bool closed_ = false;
  FlowReport flow_report_;
  nlohmann::ordered_json memory_;
  bool all_told_ = false;  // the report's accounts are those of all processes
  nlohmann::ordered_json report_;
};

Trainer::Trainer(Plans plans, RunOptions options)
    : impl_(std::make_unique<Impl>(std::move(plans), std::move(options))) {}
Trainer::~Trainer() = default;
nlohmann::ordered_json Trainer::run() { return impl_->run(); }

}  // namespace lanewise
