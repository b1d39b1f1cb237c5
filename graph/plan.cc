#include "graph/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace lanewise {

void RunSettings::fields(Fields& f) {
  f.add("steps", steps, "ends the run after so many").unit("steps").at_least(1);
  f.add("passes", passes, "ends it once every stream was read so often").at_least(1);
  f.add("minutes", minutes, "ends it after so long").unit("min").above(0);
  f.add("seed", seed, "where every random number starts");
  f.add("threads", threads, "worker threads; 0: as many as there are cores").between(0, 4096);
  f.add("dtype", dtype, "of samples, weights and gradients").one_of({"float32", "float64"});
  f.add("reduction", reduction, "how the lanes' gradients are added up").one_of({"reference"});
  f.add("weights", weights, "one copy a memory domain, or one a virtual device").one_of({"shared", "per_device"});
  f.add("on_end", on_end, "what the end of a stream means; without it, restart with passes, else first")
      .one_of({"first", "restart", "mask"});
  f.add("non_finite", non_finite, "what a loss or gradient that is not finite means").one_of({"stop"});
  f.add("stall_s", stall_s, "after so long without progress a source is named").unit("s").above(0);
  f.group("metrics", "what metrics.jsonl holds",
          [this](Fields& g) { g.add("every", metrics_every, "one line each so many").unit("steps").at_least(1); });
}

const PlanNode* Plan::find(const std::string& id) const {
  const auto it = std::find_if(nodes.begin(), nodes.end(), [&](const PlanNode& node) { return node.id == id; });
  return it == nodes.end() ? nullptr : &*it;
}

std::vector<int> Plan::with_role(Role role) const {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (nodes[i].type->role == role) found.push_back(i);
  }
  return found;
}

const PlanModel& Plan::model(const std::string& model_name) const {
  for (const PlanModel& one : models) {
    if (one.name == model_name) return one;
  }
  throw Error(Exit::kInternal, fmt::format("the plan has no model \"{}\"", model_name));
}

}  // namespace lanewise
