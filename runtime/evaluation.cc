#include "runtime/evaluation.h"

#include "runtime/random.h"
#include "runtime/recurrent_state.h"
#include "runtime/replica.h"

namespace lanewise {

void run_evaluation(const Plan& plan, const Services& training, PredictionSink& sink, Ledger& ledger,
                    const EvaluationOptions& options) {
  SourceRules rules = training.get<SourceRules>();
  rules.end_rule = plan.end_rule;
  rules.passes = std::nullopt;
  rules.evaluating = true;
  rules.record_every = 0;
  RandomSeed seed{training.get<RandomSeed>().seed, "evaluate"};
  const StreamTable& streams = training.get<StreamTable>();
  Units units(plan, streams, training.get<Normalization>());
  RecurrentState recurrent(streams.size(), training.get<Replicas>().any_model().state_size(), rules.dtype);
  Services services = training;
  services.add(rules);
  services.add(seed);
  services.add(units);
  services.add(recurrent);
  services.add(sink);
  Flow flow(plan, make_nodes(plan, services), options.flow);
  options.watch(&flow);
  try {
    flow.run();
  } catch (...) {
    options.watch(nullptr);
    throw;
  }
  options.watch(nullptr);
  ledger.close(plan, flow, streams);
}

}  // namespace lanewise
