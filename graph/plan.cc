#include "graph/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/text.h"

namespace lanewise {
namespace {

constexpr int kMostGroups = 4096;

}  // namespace

const std::vector<std::string>& end_rules() {
  static const std::vector<std::string> rules = {"first", "restart", "mask", "error"};
  return rules;
}

void CheckpointRules::fields(Fields& f) {
  f.add("every", every, "one each so many; without it, one at the end and when the run is stopped")
      .unit("steps")
      .at_least(1);
  f.add("keep", keep, "the newest so many stay").at_least(1);
  f.add("keep_best", keep_best, "so many with the least mean squared error of an evaluation stay, too").at_least(0);
  f.add("on_error", on_error,
        "what a checkpoint that cannot be written means: the run stops, or goes on with the older ones")
      .one_of({"stop", "continue"});
}

void RunSettings::fields(Fields& f) {
  f.add("steps", steps, "ends the run after so many").unit("steps").at_least(1);
  f.add("passes", passes, "ends it once every stream was read so often").at_least(1);
  f.add("minutes", minutes, "ends it after so long").unit("min").above(0).at_most(1e7);
  f.add("seed", seed, "where every random number starts");
  f.add("threads", threads, "worker threads; 0: as many as there are cores").between(0, 4096);
  f.add("dtype", dtype, "of samples, weights and gradients").one_of({"float32", "float64"});
  f.add("reduction", reduction,
        "how the lanes' gradients are added up; without it, reference on the host and deterministic on GPUs")
      .one_of({"reference", "deterministic", "fast"});
  f.add("weights", weights, "one copy a memory domain, or one a virtual device").one_of({"shared", "per_device"});
  f.add("on_end", on_end, "what the end of a stream means; without it, restart with passes, else first")
      .one_of(end_rules());
  f.add("non_finite", non_finite,
        "what a loss or gradient that is not finite means: the run stops, the step is skipped, or "
        "nothing")
      .one_of({"stop", "skip", "allow"});
  f.add("state", state, "what a recurrent model starts a sample from: zero, or the state that its stream has left")
      .one_of({"zero", "carry"});
  f.add("tbptt", tbptt, "samples of each stream in one batch, through which the backward goes")
      .unit("samples")
      .at_least(1);
  f.add("burn_in", burn_in, "samples after a stream's start that only move its state").unit("samples").at_least(0);
  f.add("accumulate", accumulate, "batches of every lane in one step").unit("rounds").at_least(1);
  f.add("fuse", fuse,
        "neighbours that are alike and share their memory are so many batches: off, a number, or auto: off under the "
        "reduction reference, else 2 on a host and 1 on a GPU");
  const bool groups = fuse.is_number_integer() && fuse >= 1 && fuse <= kMostGroups;
  if (!groups && fuse != "off" && fuse != "auto")
    f.problem("fuse", fmt::format("run: \"fuse\" must be off, auto or a number of batches, not {}", shown(fuse)));
  f.add("buffers", buffers,
        "what the statistics of normalising layers are: each lane's own, or the mean of all lanes after each step; "
        "such a model needs it")
      .one_of({"local", "average"});
  f.add("verify_every", verify_every, "compares the copies of the weights; 0: never").unit("steps").at_least(0);
  f.add("stall_s", stall_s, "after so long without progress a source is named").unit("s").at_least(0.1);
  f.group("metrics", "what metrics.jsonl holds",
          [this](Fields& g) { g.add("every", metrics_every, "one line each so many").unit("steps").at_least(1); });
  f.group("checkpoint", "what a run can be resumed from", [this](Fields& g) { checkpoint.fields(g); });
}

std::optional<int> PlanNode::gpu() const {
  constexpr std::string_view kKind = "cuda:";
  if (!device.starts_with(kKind)) return std::nullopt;
  return std::stoi(device.substr(kKind.size()));
}

std::string Plan::reduction() const {
  if (!run.reduction.empty()) return run.reduction;
  return std::ranges::any_of(nodes, [](const PlanNode& node) { return node.gpu().has_value(); }) ? "deterministic"
                                                                                                 : "reference";
}

const PlanNode* Plan::find(const std::string& id) const {
  const auto it = std::find_if(nodes.begin(), nodes.end(), [&](const PlanNode& node) { return node.id == id; });
  return it == nodes.end() ? nullptr : &*it;
}

std::size_t Plan::lane_count() const {
  std::size_t count = 0;
  for (const int lane : with_role(Role::kCompute)) count += std::max<std::size_t>(nodes[lane].fused.size(), 1);
  return count;
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
