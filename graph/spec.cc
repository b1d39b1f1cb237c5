#include "graph/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "graph/build.h"
#include "graph/document.h"
#include "graph/expand.h"
#include "graph/fuse.h"
#include "graph/load.h"
#include "graph/read.h"
#include "graph/text.h"

namespace lanewise {
namespace {

constexpr std::int64_t kStepsAfterSwap = 100;  // of an evaluation whose sources have become endless

// The id of an endless source, or "".
std::string endless_source(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (node.type->role == Role::kSource && !node.signatures.empty() && node.signatures[0].endless) return node.id;
  }
  return "";
}

// The id of a source that may end or not, for all that is told; "" where there is none.
std::string source_of_unknown_end(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (!node.type || node.type->role != Role::kSource || node.signatures.empty()) continue;
    if (!node.signatures[0].endless && !node.signatures[0].length) return node.id;
  }
  return "";
}

// What needs an end must have one.
void check_ends(const Spec& spec, const Document& document, Settings& settings, Draft& train,
                std::optional<Draft>& evaluation, bool predict, std::vector<Problem>& problems) {
  const RunSettings& run = settings.run;
  if (const std::string id = endless_source(train.plan); !id.empty() && run.passes && !run.steps && !run.minutes) {
    problems.push_back(
        {spec.run.origin_of("passes").place(document),
         fmt::format("run: \"passes\" never end, since {} is endless; give \"steps\" or \"minutes\" as well",
                     in_quotes(id))});
  }
  const auto note = [&](const Plan& plan, const std::string& what, const std::string& bound) {
    if (const std::string id = source_of_unknown_end(plan); !id.empty()) {
      train.plan.notes.push_back(
          fmt::format("{} may be endless, as far as is known, and then {} never ends; \"samples\" bounds it, or {}",
                      in_quotes(id), what, bound));
    }
  };
  if (run.passes && !run.steps && !run.minutes) note(train.plan, "the run", "run.steps");
  if (!evaluation || settings.evaluate->steps) return;
  const std::string id = endless_source(evaluation->plan);
  if (id.empty()) return note(evaluation->plan, predict ? "the prediction" : "an evaluation", "evaluate.steps");
  const bool swapped =
      std::any_of(spec.nodes.begin(), spec.nodes.end(), [](const NodeSpec& node) { return node.swapped >= 0; });
  if (predict) {
    problems.push_back(
        {{"command line", ""},
         fmt::format("predict needs an end, since {} is endless: give one, as in --set evaluate.steps=100",
                     in_quotes(id))});
    return;
  }
  if (!swapped) {
    problems.push_back(
        {document.place("/evaluate"), fmt::format("evaluate needs \"steps\", since {} is endless", in_quotes(id))});
    return;
  }
  settings.evaluate->steps = kStepsAfterSwap;
  train.plan.evaluate = evaluation->plan.evaluate = settings.evaluate;
  train.plan.notes.push_back(fmt::format("evaluate.steps is {}, since {} is endless", kStepsAfterSwap, in_quotes(id)));
}

// nullopt: the pipeline is not evaluated, or something is wrong with it, which is told.
std::optional<Draft> draft_evaluation(const Spec& spec, const Settings& settings, const Wiring& wiring,
                                      const Registry& registry, const Document& document,
                                      std::vector<Problem>& problems) {
  if (!settings.evaluate) return std::nullopt;
  const NodeType* score = registry.find_node("score");
  const auto taken = spec.find("score");
  if (score && taken) {
    problems.push_back({spec.nodes[taken->node].origin.below("id").place(document),
                        "node: the id \"score\" is that of the node which an evaluation adds; choose another"});
  }
  if (!wiring.sound || !score || taken) {
    draft(spec, settings, wiring, /*evaluating=*/true, document, problems);  // for what is wrong in evaluate.set
    return std::nullopt;
  }
  Draft result = draft(spec, settings, expand_evaluation(wiring, *score), /*evaluating=*/true, document, problems);
  if (result.plan.nodes.back().inputs.empty()) {
    problems.push_back({document.place("/evaluate"), "evaluate needs a node that computes predictions"});
  }
  return result;
}

// Nodes in which something was found for the training are not told of twice.
void infer_evaluation(Draft& evaluation, const Draft& train, std::vector<Problem>& problems) {
  std::unordered_set<std::string> broken;
  for (std::size_t i = 0; i < train.broken.size(); ++i) {
    if (train.broken[i]) broken.insert(train.plan.nodes[i].id);
  }
  for (std::size_t i = 0; i < evaluation.broken.size(); ++i) {
    if (broken.contains(evaluation.plan.nodes[i].id)) evaluation.broken[i] = true;
  }
  const std::size_t before = problems.size();
  infer(evaluation, problems);
  for (std::size_t i = before; i < problems.size(); ++i) problems[i].rule = "in the evaluation: " + problems[i].rule;
}

// Names of models that nobody has, of lanes that inference passed over since something else is wrong with them.
void check_model_names(const Spec& spec, const Plan& plan, std::vector<Problem>& problems) {
  std::vector<std::string> names;
  for (const ModelSpec& model : spec.models) names.push_back(model.name);
  for (const PlanNode& node : plan.nodes) {
    const auto place = node.param_places.find("model");
    if (!node.type || node.type->role != Role::kCompute || place == node.param_places.end()) continue;
    const auto told = [&](const Problem& problem) {
      return problem.place.at == place->second.at && problem.place.pointer == place->second.pointer;
    };
    const std::string model = node.params.at("model");
    if (std::ranges::find(names, model) != names.end() || std::ranges::any_of(problems, told)) continue;
    problems.push_back({place->second, fmt::format("there is no model {} in \"models\"{}", in_quotes(model),
                                                   did_you_mean(model, names))});
  }
}

}  // namespace

Plans plan_pipeline(const std::string& text, const std::string& file, const Registry& base,
                    const PlanOptions& options) {
  std::vector<Problem> problems;
  Loaded loaded = load(text, file, base, options, problems);
  Plans plans = plan_loaded(loaded, options, std::move(problems));
  const std::string here = std::filesystem::current_path().string();
  const std::string named = file == kStandardInput ? plans.train.name : file;  // so that its name stays the same
  plans.source = {
      text,         std::filesystem::absolute(named).string(), std::move(loaded.bases), options.overrides, options.gpus,
      options.hosts};
  for (Override& change : plans.source.overrides) {
    if (change.folder.empty()) change.folder = here;
  }
  return plans;
}

Plans plan_loaded(const Loaded& loaded, const PlanOptions& options, std::vector<Problem> problems) {
  const Registry& registry = *loaded.types;
  const Spec& spec = loaded.spec;
  const Document& document = loaded.nodes();
  Settings settings = read_settings(spec, document, registry, problems);
  if (settings.run.threads == 0) settings.run.threads = std::max(1, options.cores);
  if (!spec.expandable) throw PipelineError(std::move(problems));

  const Wiring wiring = expand(spec, document, options.gpus, options.hosts, problems);
  Draft train = draft(spec, settings, wiring, /*evaluating=*/false, document, problems);
  train.plan.notes = loaded.notes;
  std::optional<Draft> evaluation = draft_evaluation(spec, settings, wiring, registry, document, problems);
  if (options.infer && wiring.sound) {
    infer(train, problems);
    if (evaluation) infer_evaluation(*evaluation, train, problems);
    check_ends(spec, document, settings, train, evaluation, options.predict, problems);
    if (problems.empty() && registry.rules) registry.rules(train.plan, problems);
  }
  if (options.infer && !problems.empty()) check_model_names(spec, train.plan, problems);
  if (!problems.empty()) throw PipelineError(std::move(problems));

  Plans plans;
  plans.types = loaded.types;
  plans.train = seal(std::move(train), spec, settings);
  if (evaluation) plans.evaluate = seal(std::move(*evaluation), spec, settings);
  if (options.infer) fuse(plans.train, plans.evaluate, registry.find_node("merge"), options.hosts);
  return plans;
}

Plans plan_file(const std::string& file, const Registry& registry, const PlanOptions& options) {
  return plan_pipeline(read_pipeline_text(file), file == "-" ? kStandardInput : file, registry, options);
}

}  // namespace lanewise
