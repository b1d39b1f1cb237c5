#include "runtime/inference.h"

#include <fmt/format.h>

#include "runtime/archive.h"
#include "runtime/data_files.h"
#include "runtime/evaluation.h"
#include "runtime/generators/generators.h"
#include "runtime/lane_table.h"
#include "runtime/prediction_csv.h"
#include "runtime/random.h"
#include "runtime/run_directory.h"
#include "runtime/scoreboard.h"
#include "runtime/setup.h"
#include "runtime/snapshot.h"

namespace lanewise {
namespace {

// What a checkpoint's model needs around it.
class Trained {
 public:
  Trained(const Plans& plans, const Checkpoint& checkpoint, const InferenceOptions& options)
      : plan_(*plans.evaluate),
        options_(options),
        streams_(plans.train),
        lanes_(plans.train, streams_),
        means_(streams_.size()),
        rules_(source_rules(plans.train)),
        directory_("", [](const std::string&) {}) {
    use_one_thread();
    const nlohmann::json manifest = checkpoint.manifest;
    check_data_files(checkpoint.manifest.at("data"), code_files(plans.train));
    load_normalization(normalization_, manifest.at("normalization"));
    means_.restore(manifest.at("target_means"));
    replicas_ = make_replicas(plans.train, streams_, lanes_.own());
    load_model(*replicas_, checkpoint);
    directory_.step.store(checkpoint.step);
    seed_.seed = plans.train.run.seed;
    services_.add(rules_);
    services_.add(seed_);
    services_.add(streams_);
    services_.add(lanes_);
    services_.add(normalization_);
    services_.add(means_);
    services_.add(*replicas_);
    services_.add(directory_);
    services_.add(generators_);
    services_.add(archives_);
  }

  void run(PredictionSink& sink, const std::function<void(Ledger&)>& count) {
    Ledger ledger(streams_.size());
    run_evaluation(plan_, services_, sink, ledger,
                   {.flow = {.threads = options_.threads, .on_worker_start = use_one_thread}});
    if (options_.signal() != 0) throw Error(Exit::kStopped, "stopped on request before the end");
    count(ledger);
    ledger.check(streams_);
  }

  const StreamTable& streams() const { return streams_; }
  Units units() const { return Units(plan_, streams_, normalization_); }
  const TargetMeans& means() const { return means_; }

 private:
  const Plan& plan_;
  const InferenceOptions& options_;
  StreamTable streams_;
  LaneTable lanes_;
  Normalization normalization_;
  TargetMeans means_;
  SourceRules rules_;
  RandomSeed seed_;
  Archives archives_;
  RunDirectory directory_;
  Generators generators_{{.say = [this](const std::string& line) { options_.say(line); },
                          .log = [](const std::string&, std::string_view) {},  // the run directory is only read
                          .stop_wanted = [this] { return options_.signal() != 0; }}};
  std::unique_ptr<Replicas> replicas_;
  Services services_;
};

class CsvSink final : public PredictionSink {
 public:
  CsvSink(const StreamTable& streams, const Units& units, std::uint64_t step, const InferenceOptions& options,
          const std::function<void(std::string_view)>& write)
      : csv_(streams, units),
        step_(step),
        options_(options),
        write_(write),
        samples_(streams.size()),
        fillers_(streams.size()) {}

  void add(const Prediction& prediction, bool) override {
    for (const Tag& row : prediction.batch->rows) ++(row.filler ? fillers_ : samples_)[row.stream];
    const std::string lines = csv_.lines(prediction, "predict", step_, first_);
    first_ = first_ && lines.empty();
    write_(lines);
  }
  bool stop_wanted() const override { return options_.signal() != 0; }
  void count(Ledger& ledger) const {
    for (std::size_t s = 0; s < samples_.size(); ++s) ledger.take(static_cast<int>(s), samples_[s], fillers_[s]);
  }

 private:
  const PredictionCsv csv_;
  const std::uint64_t step_;
  const InferenceOptions& options_;
  const std::function<void(std::string_view)>& write_;
  std::vector<std::uint64_t> samples_, fillers_;  // by stream
  bool first_ = true;
};

}  // namespace

nlohmann::ordered_json evaluate_checkpoint(const Plans& plans, const Checkpoint& checkpoint,
                                           const InferenceOptions& options) {
  Trained trained(plans, checkpoint, options);
  const Units units = trained.units();
  Scoreboard board(trained.streams(), units, trained.means(), [&] { return options.signal() != 0; });
  trained.run(board, [&](Ledger& ledger) {
    for (int s = 0; s < trained.streams().size(); ++s) ledger.take(s, board.evaluated(s), board.fillers(s));
  });
  nlohmann::ordered_json result = {{"step", checkpoint.step}};
  result.update(board.result());
  return result;
}

void predict_by_checkpoint(const Plans& plans, const Checkpoint& checkpoint, const InferenceOptions& options,
                           const std::function<void(std::string_view)>& write) {
  Trained trained(plans, checkpoint, options);
  const Units units = trained.units();
  CsvSink sink(trained.streams(), units, checkpoint.step, options, write);
  trained.run(sink, [&](Ledger& ledger) { sink.count(ledger); });
}

}  // namespace lanewise
