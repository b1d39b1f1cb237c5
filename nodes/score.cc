// score: the end of an evaluation's plan. Hands the predictions of all lanes, in lane order, to where they are wanted.
#include "graph/plan.h"
#include "nodes/node_type.h"
#include "runtime/evaluation.h"

namespace lanewise {
namespace {

class Score final : public Node {
 public:
  struct Params {
    void fields(Fields&) {}
  };

  Score(const Params&, const NodeContext& context)
      : sink_(context.services.get<PredictionSink>()),
        rounds_(context.plan.evaluate ? context.plan.evaluate->steps : std::nullopt) {}

  void fire(Firing& firing) override {
    bool all_ended = true;
    for (Packet& input : firing.inputs()) {
      if (input.is_end()) return firing.end();
      for (const Tag& row : input.get<Prediction>().batch->rows) all_ended = all_ended && row.ended;
    }
    for (Packet& input : firing.inputs()) sink_.add(input.get<Prediction>(), /*counts=*/!all_ended);
    const bool last = rounds_ && static_cast<std::int64_t>(firing.index()) + 1 >= *rounds_;
    if (all_ended || last || sink_.stop_wanted()) firing.finish();
  }

 private:
  PredictionSink& sink_;
  const std::optional<std::int64_t> rounds_;
};

}  // namespace

NodeType score() {
  NodeType type = node_type<Score>("score", "the end of an evaluation", Role::kSink,
                                   {{"predictions", "prediction", /*many=*/true}}, {}, [](InferContext&) {});
  type.internal = true;
  return type;
}

}  // namespace lanewise
