// predictions: writes every row's target and prediction, in original units, to a CSV file of the run directory
// (runtime/prediction_csv.h). Behind a normalize node in mode `running`, rows of the training stay in the units the
// model sees.
#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/prediction_csv.h"
#include "runtime/run_directory.h"
#include "runtime/services.h"

namespace lanewise {
namespace {

class Predictions final : public Node {
 public:
  struct Params {
    std::string file = "predictions.csv";
    void fields(Fields& f) { f.add("file", &file, "name of the file in the run directory"); }
  };

  Predictions(const Params& params, const NodeContext& context)
      : run_(context.services.get<RunDirectory>()),
        csv_(context.services.get<StreamTable>(), context.services.get<Units>()),
        evaluating_(context.plan.evaluating),
        rounds_(evaluating_ && context.plan.evaluate ? context.plan.evaluate->steps : std::nullopt) {
    file_ = run_.tap(context.node.id, params.file);
  }

  void fire(Firing& firing) override {
    bool all_ended = true;  // then the round does not count
    for (Packet& input : firing.inputs()) {
      if (input.is_end()) return firing.end();
      for (const Tag& row : input.get<Prediction>().batch->rows) all_ended = all_ended && row.ended;
    }
    // Lanes run ahead of the score that ends an evaluation.
    const bool beyond = rounds_ && static_cast<std::int64_t>(firing.index()) >= *rounds_;
    if (file_ == nullptr || all_ended || beyond) return;
    for (Packet& input : firing.inputs()) {
      const Prediction& p = input.get<Prediction>();
      file_->write(
          csv_.lines(p, evaluating_ ? "evaluate" : "train", evaluating_ ? run_.step.load() : p.step, file_->empty()));
    }
  }

 private:
  RunDirectory& run_;
  const PredictionCsv csv_;
  const bool evaluating_;
  const std::optional<std::int64_t> rounds_;
  OutputFile* file_ = nullptr;  // the run directory owns it; null: nothing is written
};

}  // namespace

NodeType predictions() {
  return node_type<Predictions>("predictions", "writes targets and predictions, in original units, to a CSV file",
                                Role::kSink, {{"predictions", "prediction", /*many=*/true}}, {}, [](InferContext&) {});
}

}  // namespace lanewise
