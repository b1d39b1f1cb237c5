// One run of an evaluation's plan: no gradient, weights read in place, the streams from their beginning with recurrent
// state of their own. It changes nothing of the training.
#pragma once

#include <functional>

#include "graph/flow.h"
#include "runtime/ledger.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

// What the predictions of an evaluation go to, in order: round by round, lane by lane. Used by one thread at a time.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  // `counts` false: every stream has ended, and the rows are only seen.
  virtual void add(const Prediction& prediction, bool counts) = 0;
  // Breaks the evaluation off.
  virtual bool stop_wanted() const = 0;
};

struct EvaluationOptions {
  FlowOptions flow;
  // Called with the flow before it runs, and with nullptr after.
  std::function<void(Flow*)> watch = [](Flow*) {};
};

// `services`: those of a training, or at least SourceRules, RandomSeed, StreamTable, Normalization, Replicas and
// RunDirectory. Adds what the flow counts to `ledger`, whose rows used are for the caller to add. Throws what goes
// wrong in a node.
void run_evaluation(const Plan& plan, const Services& services, PredictionSink& sink, Ledger& ledger,
                    const EvaluationOptions& options);

}  // namespace lanewise
