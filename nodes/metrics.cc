// metrics: writes the steps it is given to a file of its own in the run directory, like metrics.jsonl, which every run
// has.
//
//   { "id": "log", "type": "metrics", "in": [ { "from": "opt.step" } ], "params": { "file": "mine.jsonl", "every": 10 }
//   }
#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/report.h"
#include "runtime/run_directory.h"

namespace lanewise {
namespace {

class Metrics final : public Node {
 public:
  struct Params {
    std::string file = "steps.jsonl";
    std::int64_t every = 1;
    void fields(Fields& f) {
      f.add("file", &file, "name of the file in the run directory");
      f.add("every", &every, "how often a line is written").at_least(1).unit("steps");
    }
  };

  Metrics(const Params& params, const NodeContext& context) : every_(static_cast<std::uint64_t>(params.every)) {
    file_ = context.services.get<RunDirectory>().tap(context.node.id, params.file);
  }

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    for (const StepRecord& record : firing.input(0).get<StepRecords>()) {
      if (file_ != nullptr && record.step % every_ == 0) file_->write(metrics_line(record));
    }
  }

 private:
  const std::uint64_t every_;
  OutputFile* file_ = nullptr;  // the run directory owns it; null: nothing is written
};

}  // namespace

NodeType metrics() {
  return node_type<Metrics>("metrics", "writes steps to a file of the run directory", Role::kSink, {{"step", "step"}},
                            {}, [](InferContext&) {});
}

}  // namespace lanewise
