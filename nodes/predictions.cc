// predictions: writes every row's target and prediction, in original units, to a CSV file of the run directory.
//
//   phase,step,stream,run,seq,time,weight,y0,…,p0,…
//
// step is the number of steps behind the weights that predicted; time is in nanoseconds. Fillers are not written.
#include <ATen/ATen.h>

#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/run_directory.h"
#include "runtime/services.h"

namespace lanewise {
namespace {

// RFC 4180: quoted where it must be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

class Predictions final : public Node {
 public:
  struct Params {
    std::string file = "predictions.csv";
    void fields(Fields& f) { f.add("file", &file, "name of the file in the run directory"); }
  };

  Predictions(const Params& params, const NodeContext& context)
      : run_(context.services.get<RunDirectory>()),
        streams_(context.services.get<StreamTable>()),
        units_(context.services.get<Units>()),
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
    for (Packet& input : firing.inputs()) write(input.get<Prediction>());
  }

 private:
  void write(const Prediction& p) {
    const std::vector<Tag>& rows = p.batch->rows;
    const at::Tensor y = p.batch->y.flatten(0, 1), prediction = p.prediction.flatten(0, 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Tag& row = rows[i];
      if (row.filler) continue;
      const auto index = static_cast<std::int64_t>(i);
      // Class scores have no original units; everything else is shaped like the target.
      const bool like_target = prediction[index].sizes() == y[index].sizes() && at::isFloatingType(y.scalar_type());
      const at::Tensor target = at::isFloatingType(y.scalar_type()) ? units_.original(row.stream, y[index]) : y[index];
      const at::Tensor answer = like_target ? units_.original(row.stream, prediction[index]) : prediction[index];
      if (file_->empty()) write_header(target.numel(), answer.numel());
      line_ = fmt::format("{},{},{},{},{},{},{}", evaluating_ ? "evaluate" : "train",
                          evaluating_ ? run_.step.load() : p.round, csv_field(streams_.name(row.stream)), row.run, row.seq,
                          row.time ? fmt::format("{}", *row.time) : "", row.weight);
      append(target);
      append(answer);
      file_->write(line_ + "\n");
    }
  }

  void write_header(std::int64_t targets, std::int64_t answers) {
    std::string line = "phase,step,stream,run,seq,time,weight";
    for (std::int64_t i = 0; i < targets; ++i) line += fmt::format(",y{}", i);
    for (std::int64_t i = 0; i < answers; ++i) line += fmt::format(",p{}", i);
    file_->write(line + "\n");
  }

  // NaN, a target that is missing, is an empty field.
  void append(const at::Tensor& values) {
    const at::Tensor flat = values.flatten().to(at::kDouble).contiguous();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      const double v = flat.const_data_ptr<double>()[i];
      line_ += std::isnan(v) ? "," : fmt::format(",{}", v);
    }
  }

  RunDirectory& run_;
  const StreamTable& streams_;
  const Units& units_;
  const bool evaluating_;
  const std::optional<std::int64_t> rounds_;
  OutputFile* file_ = nullptr;  // the run directory owns it; null: nothing is written
  std::string line_;
};

}  // namespace

NodeType predictions() {
  return node_type<Predictions>("predictions", "writes targets and predictions, in original units, to a CSV file",
                                Role::kSink, {{"predictions", "prediction", /*many=*/true}}, {}, [](InferContext&) {});
}

}  // namespace lanewise
