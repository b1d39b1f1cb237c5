#include "runtime/trainer.h"

#include <csignal>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>

#include "graph/cut.h"
#include "graph/dump.h"
#include "runtime/checkpoint_store.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/communicator.h"
#include "runtime/data_files.h"
#include "runtime/directory_lock.h"
#include "runtime/dropout.h"
#include "runtime/evaluation.h"
#include "runtime/fit.h"
#include "runtime/lane_table.h"
#include "runtime/ledger.h"
#include "runtime/library_error.h"
#include "runtime/packing.h"
#include "runtime/progress.h"
#include "runtime/random.h"
#include "runtime/report.h"
#include "runtime/run_directory.h"
#include "runtime/scoreboard.h"
#include "runtime/setup.h"
#include "runtime/snapshot.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostBetweenRecords = 64;  // samples
constexpr std::size_t kSkipsTold = 20;            // in the report
constexpr double kFlushPeriod = 1;                // seconds after which a reader of the metrics sees new lines

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

nlohmann::ordered_json number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

std::optional<double> number_in(const nlohmann::ordered_json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

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
        trained_before_(static_cast<std::size_t>(streams_.size())) {}

  nlohmann::ordered_json run() {
    Exit exit = Exit::kDone;
    try {
      prepare();
      train();
      finish();
      if (stopped_) exit = Exit::kStopped;
    } catch (const Error& error) {
      exit = error.exit();
      reason_ = error.what();
    } catch (const std::bad_alloc&) {
      exit = Exit::kInternal;
      reason_ = "out of memory; a smaller model, fewer lanes or smaller capacities need less";
    } catch (const std::exception& error) {
      exit = Exit::kInternal;
      reason_ = what_without_stack(error);
    }
    if (writer_ != nullptr) saves_ = writer_->times();
    writer_.reset();  // a save in progress is finished; what became of it was said, or is the reason already
    progress_.reset();
    if (exit != Exit::kDone && !settled_) world_.tell_failure(exit, world_.size() == 1 ? reason_ : told_by(reason_));
    return leave_report(exit);
  }

  // RunControl.

  bool stop_wanted() const override { return options_.signal() != 0 || time_is_over(); }

  Next after_step(std::shared_ptr<const StepRecord> record, std::span<const Tag> rows, bool stop) override {
    const RunSettings& run = plans_.train.run;
    std::uint64_t least_run = std::numeric_limits<std::uint64_t>::max(), samples = 0;
    for (const Tag& row : rows) {
      ledger_.use(row);
      cursors_.take(row);
      least_run = std::min(least_run, row.run);
      samples += row.filler ? 0 : 1;
    }
    const auto step = static_cast<std::int64_t>(record->step);
    {
      const std::lock_guard lock(mutex_);
      if (!first_loss_) first_loss_ = record->loss;
      if (record->loss) last_loss_ = record->loss;
      samples_ += samples;
      if (least_run > 0 && steps_per_pass_ == 0)
        steps_per_pass_ = static_cast<double>(step - 1);  // the longest stream's
      directory_->step.store(record->step);
    }
    if (step % run.metrics_every == 0) {
      const double seconds = training_seconds();
      directory_->append("metrics.jsonl", metrics_line(*record));
      directory_->append("timings.jsonl", fmt::format("{{\"step\":{},\"seconds\":{:.6f}}}\n", step, seconds));
      if (seconds - flushed_ >= kFlushPeriod) {
        flushed_ = seconds;
        for (const char* const own : {"metrics.jsonl", "timings.jsonl"}) directory_->flush(own);
      }
    }
    const std::lock_guard lock(mutex_);
    return next(stop);
  }

  Next skipped(const std::string& what, std::span<const Tag> rows, bool stop) override {
    for (const Tag& row : rows) {
      ledger_.leave(row);
      cursors_.take(row);
    }
    ++skips_;
    if (skips_told_.size() < kSkipsTold) skips_told_.push_back(what);
    if (world_.first()) progress_->say("note: " + what);
    const std::lock_guard lock(mutex_);
    if (!stop) return Next::kGoOn;
    return next(stop);
  }

  void not_applied(const Reduced& reduced, std::span<const Tag> rows) override {
    for (const Tag& row : rows) ledger_.leave(row);
    std::string cut_by;
    for (const Gradient& g : reduced.gradients) {
      if (cut_by.empty()) cut_by = g.cut_by;
    }
    const std::lock_guard lock(mutex_);
    if (reduced.cut && cut_by.empty()) return;  // in another process, which says so
    if (reduced.cut) {
      reason_ = fmt::format("stream {} ended after {} samples", cut_by, cursors_.of(streams_.index(cut_by)).consumed);
      ended_by_ = cut_by;
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
    progress_ = std::make_unique<Progress>(Progress::Options{.quiet = options_.quiet || !world_.first(),
                                                             .terminal = options_.terminal,
                                                             .stall_s = plans_.train.run.stall_s,
                                                             .say = options_.say,
                                                             .draw = options_.draw,
                                                             .state = [this] { return progress_state(); },
                                                             .signal = options_.signal,
                                                             .status_wanted = options_.status_wanted});
    const std::optional<Checkpoint> checkpoint = open_directory();
    if (world_.first()) {
      for (const std::string& note : plans_.train.notes) progress_->say("note: " + note);
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
    services_.add(means_);
    replicas_ = make_replicas(plans_.train, streams_, lanes_.own());
    services_.add(*replicas_);
    const PlanNode& optimizer = plans_.train.nodes[plans_.train.with_role(Role::kOptimizer).front()];
    optimizers_ = std::make_unique<Optimizers>(read_checked<OptimizerParams>(optimizer.params), *replicas_);
    services_.add(*optimizers_);
    recurrent_ = std::make_unique<RecurrentState>(streams_.size(), replicas_->any_model().state_size(), rules_.dtype);
    services_.add(*recurrent_);
    communicator_ = world_.communicator(plans_.train.run.reduction);
    services_.add(*communicator_);
    if (checkpoint) {
      restore(*checkpoint);
    } else {
      fit_normalizers(train_, services_, normalization_, [this] { stop_before_first_step(); });
    }
    units_ = std::make_unique<Units>(plans_.train, streams_, normalization_);
    services_.add(*units_);
    nodes_ = make_nodes(train_, services_);
    if (checkpoint) restore_nodes(parts(), *checkpoint, nodes_);
  }

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
    data_ = data_files_of_all();
    if (writes) open_files(checkpoint, say);
    return checkpoint_for_all(std::move(checkpoint));
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
    directory_->write("manifest.json", manifest(plans_, threads_).dump(2) + "\n");
    writer_ = std::make_unique<CheckpointWriter>(
        [this](const Checkpoint& c, std::optional<double> score) {
          directory_->sync(c.manifest.at("lengths").get<RunDirectory::Lengths>());
          store_->save(c, score);
        },
        plans_.train.run.checkpoint.on_error == "stop" ? OnError::kStop : OnError::kContinue,
        [say](const std::string& what) { say("warning: no checkpoint was saved: " + what + "; the run goes on"); });
  }

  void train() {
    resumed_at_ = directory_->step.load();
    training_ = Clock::now();
    Flow flow(train_, std::move(nodes_), flow_options());
    // Whatever ends the training, its counters go into the report.
    try {
      if (resumed_at_ > 0 && evaluation_due()) evaluate();  // the run was stopped before it could
      progress_->watch(train_, &flow);
      // An evaluation that was broken off is the first thing that a resumed run does.
      while (!stopped_ && !is_over() && flow.run() == Flow::Outcome::kPaused) {
        progress_->watch(train_, nullptr);
        if (evaluation_due()) evaluate();
        if (checkpoint_due()) save(flow);
        progress_->watch(train_, &flow);
      }
      close(flow);
      ledger_.check(streams_);
      settle_end();
    } catch (const Error& error) {
      close(flow);
      if (error.exit() == Exit::kStopped && world_.size() == 1 && taps_are_done(flow)) save(flow);
      throw;
    } catch (...) {
      close(flow);
      throw;
    }
    if (plans_.evaluate && !stopped_) evaluate();
    save(flow);
    if (ended_by_.empty() || end_rule_of(plans_.train, *plans_.train.find(ended_by_)) != "error") return;
    throw Error(Exit::kData, reason_ + ", and its end is an error (on_end)");
  }

  void close(const Flow& flow) {
    progress_->watch(train_, nullptr);
    seconds_ = training_seconds();
    flow_report_ = flow.report();
    if (closed_) return;
    closed_ = true;
    ledger_.close(train_, flow, streams_);
  }

  // The processes agree on why the training has ended: the first of them that knows tells the others.
  void settle_end() {
    const nlohmann::json own = {{"reason", reason_}, {"ended_by", ended_by_}, {"stopped", stopped_}};
    for (const std::string& text : world_.gather(own.dump())) {
      const nlohmann::json told = nlohmann::json::parse(text);
      const bool better = told.at("stopped").get<bool>() && !stopped_;
      if (!better && (!reason_.empty() || told.at("reason") == "")) continue;
      reason_ = told.at("reason");
      ended_by_ = told.at("ended_by");
      stopped_ = told.at("stopped");
    }
  }

  void finish() {
    replicas_->buffers().share([this](const at::Tensor& rows) { return world_.gather_rows(rows); });
    if (writer_ != nullptr) writer_->wait();
    gather_accounts();
    settled_ = true;  // from here on, what goes wrong is this process's own
    if (store_ != nullptr) write_safetensors(options_.directory + "/weights.safetensors", replicas_->state_dict());
    directory_->close();
  }

  // What to do after the step that directory_->step names, or after one that was skipped. Requires mutex_.
  Next next(bool stop) {
    const RunSettings& run = plans_.train.run;
    const auto step = static_cast<std::int64_t>(directory_->step.load());
    if (stop) {
      stopped_ = options_.signal() != 0;
      if (stopped_) {
        reason_ = fmt::format("stopped by {} after step {}", signal_name(), step);
      } else if (time_is_over()) {
        reason_ = fmt::format("{} minutes are over", *run.minutes);
      }  // else another process asked for it, and will say why
      return Next::kFinish;
    }
    if (run.steps && step >= *run.steps) {
      reason_ = fmt::format("all {} steps are done", step);
      return Next::kFinish;
    }
    return evaluation_due() || checkpoint_due() ? Next::kPause : Next::kGoOn;
  }

  // A resumed run may have nothing left to do.
  bool is_over() {
    if (resumed_at_ == 0 || directory_->step.load() != resumed_at_) return false;
    const bool stop = any_process(stop_wanted());
    const std::lock_guard lock(mutex_);
    return next(stop) == Next::kFinish;
  }

  bool falls_on(std::optional<std::int64_t> every) const {
    const std::uint64_t step = directory_->step.load();
    return every && step > 0 && step % static_cast<std::uint64_t>(*every) == 0;
  }
  bool evaluation_due() const { return plans_.evaluate && falls_on(plans_.train.evaluate->every); }
  bool checkpoint_due() const { return saves() && falls_on(plans_.train.run.checkpoint.every); }

  // There is a directory to save to; only the first process writes there.
  bool saves() const { return !options_.directory.empty(); }
  Plan own_part(const Plan& whole) const {
    return world_.size() == 1 ? whole : cut(whole, lanes_.own(), world_.first());
  }
  bool any_process(bool here) {
    const std::vector<std::string> all = world_.gather(here ? "1" : "");
    return std::ranges::any_of(all, [](const std::string& text) { return !text.empty(); });
  }
  std::string told_by(const std::string& reason) const {
    return fmt::format("{}: {}", lanes_.process_text(world_.rank()), reason);
  }

  nlohmann::ordered_json data_files_of_all() {
    nlohmann::ordered_json files = data_files(train_);
    if (world_.size() == 1) return files;  // as they are: paths need not be UTF-8
    nlohmann::ordered_json all = nlohmann::ordered_json::object();
    for (const std::string& text : world_.gather(files.dump())) all.update(nlohmann::ordered_json::parse(text));
    return all;
  }

  // The first process reads it for all.
  std::optional<Checkpoint> checkpoint_for_all(std::optional<Checkpoint> checkpoint) {
    if (world_.size() == 1) return checkpoint;
    const std::string bytes = world_.from_first(checkpoint ? pack(*checkpoint) : "");
    if (world_.first() || bytes.empty()) return checkpoint;
    return unpack(bytes);
  }

  // For the report: what the others' streams, nodes and edges have counted.
  void gather_accounts() {
    if (world_.size() == 1) return;
    nlohmann::json own = {{"flow", pack(flow_report_)}};
    for (int s = 0; s < streams_.size(); ++s) own["streams"].push_back(pack(ledger_.account(s)));
    std::vector<nlohmann::json> all;
    for (const std::string& text : world_.gather(own.dump())) all.push_back(nlohmann::json::parse(text));
    std::vector<FlowReport> reports;
    for (const nlohmann::json& one : all) reports.push_back(unpack_flow_report(one.at("flow")));
    flow_report_ = merge_reports(plans_.train, reports);
    const std::lock_guard lock(mutex_);
    samples_ = samples_before_;
    for (int s = 0; s < streams_.size(); ++s) {
      ledger_.set(s, unpack_account(all[lanes_.rank_of_stream(s)].at("streams").at(s)));
      samples_ += ledger_.used(s);
    }
  }

  // One evaluation, between two steps: a flow of its own over the evaluation's plan, the weights read in place.
  void evaluate() {
    const std::uint64_t step = directory_->step.load();
    if (evaluated_at_ == step && !evaluation_.is_null()) return;  // the last step was one to evaluate after, too
    Units units(*evaluate_, streams_, normalization_);
    Scoreboard board(streams_, units, means_, [this] { return options_.signal() != 0; });
    Ledger ledger(streams_.size());
    const RunDirectory::Lengths before = directory_->flush();
    try {
      run_evaluation(*evaluate_, services_, board, ledger,
                     {.flow = flow_options(), .watch = [this](Flow* flow) { progress_->watch(*evaluate_, flow); }});
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("evaluation after step {}: {}", step, error.what()));
    }
    if (any_process(board.stop_wanted())) {  // broken off: no result, and no line of a tap
      directory_->cut(before);
      stopped_ = options_.signal() != 0;
      if (stopped_) reason_ = fmt::format("stopped by {} during the evaluation after step {}", signal_name(), step);
      settle_end();
      return;
    }
    for (int s = 0; s < streams_.size(); ++s) ledger.take(s, board.evaluated(s), board.fillers(s));
    ledger.check(streams_);
    board.share(world_, lanes_);
    nlohmann::ordered_json line = {{"step", step}};
    line.update(board.result());
    evaluation_ = line;
    evaluated_at_ = step;
    directory_->append("evaluations.jsonl", line.dump() + "\n");
    if (!options_.quiet) progress_->say(fmt::format("evaluation after step {}: {}", step, evaluation_text(line)));
  }

  // A checkpoint of the last step, while the flow rests. The writer works on while the training goes on.
  void save(const Flow& flow) {
    if (!saves() || saved_at_ == directory_->step.load()) return;
    const std::uint64_t step = directory_->step.load();
    Checkpoint checkpoint = take_snapshot(parts(), flow, step);
    saved_at_ = step;
    nlohmann::ordered_json& manifest = checkpoint.manifest;
    const std::vector<std::uint64_t> trained = trained_by_all();
    if (!world_.first()) return;
    manifest["data"] = data_;
    manifest["lengths"] = directory_->flush();
    manifest["loss"] = {{"first", number(first_loss_)}, {"last", number(last_loss_)}};
    manifest["samples"] = std::accumulate(trained.begin(), trained.end(), std::uint64_t{0});
    manifest["trained"] = trained;
    manifest["steps_per_pass"] = steps_per_pass_;
    manifest["seconds"] = training_seconds();
    manifest["skipped"] = {{"steps", skips_}, {"told", skips_told_}};
    manifest["evaluation"] = evaluation_;
    manifest["evaluated_at"] = evaluated_at_;
    const bool scored = evaluated_at_ == step && !evaluation_.is_null();
    writer_->save(std::move(checkpoint), scored ? number_in(evaluation_.at("mse")) : std::nullopt);
  }

  // Samples by stream, of the runs that this one resumes, too.
  std::vector<std::uint64_t> trained_by_all() {
    nlohmann::json own;
    for (int s = 0; s < streams_.size(); ++s) own.push_back(trained_before_[s] + ledger_.used(s));
    std::vector<nlohmann::json> all;
    for (const std::string& text : world_.gather(own.dump())) all.push_back(nlohmann::json::parse(text));
    std::vector<std::uint64_t> trained;
    for (int s = 0; s < streams_.size(); ++s) trained.push_back(all[lanes_.rank_of_stream(s)].at(s));
    return trained;
  }

  void restore(const Checkpoint& checkpoint) {
    restore_parts(parts(), checkpoint);
    const nlohmann::ordered_json& manifest = checkpoint.manifest;
    directory_->step.store(checkpoint.step);
    saved_at_ = checkpoint.step;
    first_loss_ = number_in(manifest.at("loss").at("first"));
    last_loss_ = number_in(manifest.at("loss").at("last"));
    samples_ = samples_before_ = manifest.at("samples");
    for (int s = 0; s < streams_.size(); ++s) trained_before_[s] = manifest.at("trained").at(s);
    steps_per_pass_ = manifest.at("steps_per_pass");
    seconds_before_ = manifest.at("seconds");
    skips_ = manifest.at("skipped").at("steps");
    skips_told_ = manifest.at("skipped").at("told");
    evaluation_ = manifest.at("evaluation");
    evaluated_at_ = manifest.at("evaluated_at");
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

  void stop_before_first_step() const {
    if (options_.signal() != 0)
      throw Error(Exit::kStopped, fmt::format("stopped by {} before the first step", signal_name()));
  }

  FlowOptions flow_options() const {
    return {.threads = threads_, .pin = options_.pin, .on_worker_start = use_one_thread, .tell = what_without_stack};
  }

  // Of training, evaluations included, and of the runs that this one resumes.
  double training_seconds() const { return seconds_before_ + seconds_since(training_); }
  bool time_is_over() const { return plans_.train.run.minutes && training_seconds() >= *plans_.train.run.minutes * 60; }

  std::string signal_name() const {
    const char* name = sigabbrev_np(options_.signal());
    return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", options_.signal());
  }

  ProgressState progress_state() {
    const std::lock_guard lock(mutex_);
    ProgressState state{
        .step = directory_ != nullptr ? directory_->step.load() : 0, .samples = samples_, .loss = last_loss_};
    state.step_before = resumed_at_;
    state.samples_before = samples_before_;
    const RunSettings& run = plans_.train.run;
    if (run.steps) state.steps_expected = static_cast<double>(*run.steps);
    if (run.passes && steps_per_pass_ > 0) {
      const double steps = steps_per_pass_ * static_cast<double>(*run.passes);
      state.steps_expected = std::min(steps, state.steps_expected.value_or(steps));
    }
    if (run.minutes) state.seconds_expected = *run.minutes * 60;
    return state;
  }

  // The report last, whatever else cannot be written. The first error stays the reason; only a run that was fine until
  // here fails by this.
  nlohmann::ordered_json leave_report(Exit exit) {
    if (world_.size() > 1 && !settled_ && !flow_report_.nodes.empty())  // without what the others know
      flow_report_ = merge_reports(plans_.train, {flow_report_});
    nlohmann::ordered_json report = make_report(exit);
    if (directory_ == nullptr) return report;
    const auto attempt = [&](const std::function<void()>& write) {
      try {
        write();
      } catch (const std::exception& error) {
        if (exit != Exit::kDone && exit != Exit::kStopped) return options_.say(std::string("warning: ") + error.what());
        const auto* const own = dynamic_cast<const Error*>(&error);
        exit = own != nullptr ? own->exit() : Exit::kInternal;
        report["exit"] = static_cast<int>(exit);
        report["reason"] = error.what();
      }
    };
    attempt([&] { directory_->flush(); });
    attempt([&] {
      directory_->write("graph.dot", dump_dot(plans_.train, flow_report_.nodes.empty() ? nullptr : &flow_report_));
    });
    attempt([&] {
      directory_->write("report.json", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    });
    return report;
  }

  nlohmann::ordered_json make_report(Exit exit) {
    const std::uint64_t steps = directory_ != nullptr ? directory_->step.load() : 0;
    nlohmann::ordered_json streams = nlohmann::ordered_json::object();
    for (int s = 0; s < streams_.size(); ++s) {
      const StreamAccount& a = ledger_.account(s);
      const std::uint64_t before = trained_before_[s];
      streams[streams_.name(s)] = {{"produced", before + a.produced},
                                   {"trained", before + a.used},
                                   {"absorbed", a.absorbed},
                                   {"fillers", a.fillers},
                                   {"left", a.left}};
    }
    const auto rate = [&](double n) { return seconds_ > 0 ? nlohmann::ordered_json(n / seconds_) : nullptr; };
    nlohmann::ordered_json report = {{"exit", static_cast<int>(exit)}, {"reason", reason_}};
    report["name"] = plans_.train.name;
    report["digest"] = plans_.train.digest;
    report["steps"] = steps;
    if (resumed_at_ > 0) report["resumed_after"] = resumed_at_;
    if (skips_ > 0) report["skipped"] = {{"steps", skips_}, {"told", skips_told_}};
    report["samples"] = std::move(streams);
    report["loss"] = {{"first", number(first_loss_)}, {"last", number(last_loss_)}};
    report["evaluation"] = evaluation_;
    report["weights_sha256"] = replicas_ != nullptr ? nlohmann::ordered_json(replicas_->weights_sha256()) : nullptr;
    if (world_.size() > 1)
      report["processes"] = {{"count", world_.size()}, {"rank", world_.rank()}, {"all_told", settled_}};
    report["threads"] = threads_;
    report["seconds"] = {{"all", seconds_since(started_)}, {"training", seconds_}};
    report["steps_per_second"] = rate(static_cast<double>(steps));
    report["samples_per_second"] = rate(static_cast<double>(samples_));
    report["peak_rss_bytes"] = peak_rss_bytes();
    report["checkpoints"] = {{"saved", saves_.saves},
                             {"failed", saves_.failed},
                             {"mean_seconds", saves_.mean_seconds},
                             {"max_seconds", saves_.max_seconds},
                             {"snapshot_seconds", saves_.snapshot_seconds},
                             {"wait_seconds", saves_.wait_seconds}};
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
  const Plan train_;  // of this process
  const std::optional<Plan> evaluate_;
  SourceRules rules_;
  RandomSeed seed_;
  Normalization normalization_;
  Dropout dropout_;
  Services services_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<DirectoryLock> lock_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<CheckpointStore> store_;  // null: nothing is written
  std::unique_ptr<CheckpointWriter> writer_;
  CheckpointWriter::Times saves_;
  nlohmann::ordered_json data_;  // what the sources read
  std::unique_ptr<Units> units_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Optimizers> optimizers_;
  std::unique_ptr<RecurrentState> recurrent_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<Node>> nodes_;  // until the flow has them
  Ledger ledger_;  // with cursors_ and skips: written by the optimizer's firings only, read when the flow rests
  Cursors cursors_;
  std::uint64_t skips_ = 0;
  std::vector<std::string> skips_told_;
  TargetMeans means_;

  std::mutex mutex_;  // guards what the progress thread reads
  std::optional<double> first_loss_, last_loss_;
  std::uint64_t samples_ = 0;
  double steps_per_pass_ = 0;
  std::string reason_, ended_by_;
  bool stopped_ = false;  // by a signal, before the work was done
  bool settled_ = false;  // nothing is left to do together with other processes
  double flushed_ = 0;    // training_seconds() then

  // Of the run that this one resumes.
  std::uint64_t resumed_at_ = 0, samples_before_ = 0;
  std::vector<std::uint64_t> trained_before_;  // by stream
  double seconds_before_ = 0;

  nlohmann::ordered_json evaluation_;
  std::uint64_t evaluated_at_ = 0;
  std::optional<std::uint64_t> saved_at_;
  double seconds_ = 0;  // of training, evaluations included
  bool closed_ = false;
  FlowReport flow_report_;
};

Trainer::Trainer(Plans plans, RunOptions options)
    : impl_(std::make_unique<Impl>(std::move(plans), std::move(options))) {}
Trainer::~Trainer() = default;
nlohmann::ordered_json Trainer::run() { return impl_->run(); }

}  // namespace lanewise
