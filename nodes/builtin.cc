// The table of types: one line a node type.
#include "nodes/builtin.h"

#include <algorithm>

#include "nodes/plugin.h"
#include "runtime/loss.h"
#include "runtime/model.h"

namespace lanewise {

Registry builtin_registry() {
  Registry registry;
  for (const ModelType& type : model_types()) {
    if (type.plugin.empty()) registry.models.push_back(type);
  }
  for (const LossType& type : loss_types()) {
    if (type.plugin.empty()) registry.losses.push_back(type);
  }
  registry.nodes = {
      sine(),
      ar1(),
      lorenz(),
      constant(),
      csv(),
      process(),  // sources
      window(),
      normalize(),
      fault(),  // per sample
      pair(),
      merge(),  // joins
      compute(registry.losses),
      allreduce(),
      clip(),
      optimizer(),  // the training step
      console(),
      metrics(),
      predictions(),
      score()  // sinks
  };
  registry.rules = training_rules;
  registry.plugin_stamp = LANEWISE_PLUGIN_STAMP;
  registry.complete = [](Registry& extended) {
    *std::ranges::find(extended.nodes, "compute", &NodeType::name) = compute(extended.losses);
  };
  return registry;
}

}  // namespace lanewise
