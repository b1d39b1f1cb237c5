// The table of types: one line a node type.
#include "nodes/builtin.h"

#include "runtime/loss.h"
#include "runtime/model.h"

namespace lanewise {

Registry builtin_registry() {
  Registry registry;
  registry.nodes = {
      sine(),    ar1(),       lorenz(),      constant(),  csv(), process(),  // sources
      window(),  normalize(), fault(),                                       // per sample
      pair(),                                                                // joins
      compute(), allreduce(), clip(),        optimizer(),                    // the training step
      console(), metrics(),   predictions(), score()                         // sinks
  };
  registry.models.assign(model_types().begin(), model_types().end());
  registry.losses.assign(loss_types().begin(), loss_types().end());
  registry.rules = training_rules;
  return registry;
}

}  // namespace lanewise
