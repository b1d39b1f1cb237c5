// console: prints a line every so many steps, through the run's own channel to the user.
//
//   { "id": "show", "type": "console", "in": [ { "from": "opt.step" } ], "params": { "every": 100 } }
#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/run_directory.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class Console final : public Node {
 public:
  struct Params {
    std::int64_t every = 100;
    void fields(Fields& f) { f.add("every", &every, "how often a line is printed").at_least(1).unit("steps"); }
  };

  Console(const Params& params, const NodeContext& context)
      : every_(static_cast<std::uint64_t>(params.every)), run_(context.services.get<RunDirectory>()) {}

  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return firing.end();
    for (const StepRecord& record : firing.input(0).get<StepRecords>()) {
      if (record.step % every_ != 0) continue;
      run_.say(fmt::format("step {}: loss {}, gradient norm {:.4g}", record.step,
                           record.loss ? fmt::format("{:.6g}", *record.loss) : "none", record.grad_norm));
    }
  }

 private:
  const std::uint64_t every_;
  RunDirectory& run_;
};

}  // namespace

NodeType console() {
  return node_type<Console>("console", "prints a line every so many steps", Role::kSink, {{"step", "step"}}, {},
                            [](InferContext&) {});
}

}  // namespace lanewise
