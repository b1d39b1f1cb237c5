#include "graph/explain.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

constexpr const char* kDerived = R"({
  "base": "sixteen.json", "name": "mine",
  "swap": { "norm": { "type": "scale", "params": { "factor": 2 } } },
  "set": { "lane.loss": "huber",
           "gen[0..3].step": 0.5,
           "~opt.lr": null,
           "run.metrics": { "every": 4 },
           "evaluate.set.gen0.step": 0.25 }
})";

PlanOptions options() {
  PlanOptions options;
  options.bases[std::filesystem::absolute("configs/sixteen.json").lexically_normal().string()] = kSixteen;
  for (const char* change : {"lane3.loss=mse", "gen[2..5].step=0.125", "run.seed=8", "lane7.device=cpu:0"}) {
    options.overrides.push_back({Override::Kind::kSet, change});
  }
  return options;
}

std::vector<Explained> explained(const std::string& key) {
  return explain(kDerived, "configs/mine.json", test_registry(), options(), key);
}

}  // namespace

TEST_CASE("explain: a value's default and every place that wrote it are told, the last one in force") {
  std::string text;
  for (const char* key : {"lane.loss",
                          "lane3.loss",
                          "gen.step",
                          "gen[2].seed",
                          "norm0.factor",
                          "norm.type",
                          "opt.lr",
                          "run.seed",
                          "run.metrics.every",
                          "models.net.hidden",
                          "evaluate.every",
                          "lane[6..7].device",
                          "gen0.path",
                          "name",
                          "lane.los",
                          "lan.loss",
                          "run.stepz",
                          "models.nte.hidden",
                          "gen16.step",
                          "gen[16].step",
                          "+gen.step",
                          "run",
                          "run.metrics",
                          "evaluate.set.gen.rows"}) {
    text += fmt::format("{}\n", key);
    try {
      for (const Explained& one : explained(key)) {
        text += fmt::format("  {}{}\n", fmt::join(one.names, " "), one.evaluating ? " (evaluation)" : "");
        for (const Explained::Step& step : one.steps) {
          text += fmt::format("    {} | {} | {}\n", step.where, step.value.dump(), step.what);
        }
      }
    } catch (const Error& error) {
      text += fmt::format("  exit {}: {}\n", static_cast<int>(error.exit()), error.what());
    }
  }
  check_golden("graph/golden/explain.txt", text);
}

TEST_CASE("explain: what a swap took the place of is told, and what of it does not fit") {
  PlanOptions swapped;
  for (const auto& [kind, text] : {std::pair{Override::Kind::kSwap, R"(models.net={"type":"mlp","layers":2})"},
                                   {Override::Kind::kSwap, R"(norm={"type":"scale","params":{"factor":2}})"},
                                   {Override::Kind::kSet, "norm0.factor=3"},
                                   {Override::Kind::kSwap, R"(opt={"type":"optimizer"})"}}) {
    swapped.overrides.push_back({kind, text});
  }
  std::string text;
  for (const char* key :
       {"models.net.type", "models.net.hidden", "models.net.layers", "norm.type", "norm0.factor", "opt.lr"}) {
    for (const Explained& one : explain(kSixteen, "configs/sixteen.json", test_registry(), swapped, key)) {
      text += fmt::format("{}: {}\n", key, one.names.front());
      for (const Explained::Step& step : one.steps) {
        text += fmt::format("    {} | {} | {}\n", step.where, step.value.dump(), step.what);
      }
    }
  }
  check_golden("graph/golden/explain_swap.txt", text);
}

TEST_CASE("explain: for every key, what is in force is what the plans have") {
  const Plans plans = plan_pipeline(kDerived, "configs/mine.json", test_registry(), options());
  const std::vector<std::string> keys = keys_of(kDerived, "configs/mine.json", test_registry(), options());
  std::size_t compared = 0;
  for (const std::string& key : keys) {
    for (const Explained& one : explained(key)) {
      const Plan& plan = one.evaluating ? *plans.evaluate : plans.train;
      for (const std::string& name : one.names) {
        const std::size_t dot = name.find('.');
        const PlanNode* node = dot == std::string::npos ? nullptr : plan.find(name.substr(0, dot));
        if (!node) continue;
        const std::string what = name.substr(dot + 1);
        CAPTURE(name);
        if (what == "type") {
          CHECK(one.value() == node->type->name);
        } else if (what == "device") {
          CHECK((one.value() == "auto:*" || one.value() == node->device));
        } else {
          nlohmann::json in_force = node->params;
          for (std::size_t at = 0; at <= what.size();) {
            const std::size_t end = std::min(what.find('.', at), what.size());
            in_force = in_force.at(what.substr(at, end - at));
            at = end + 1;
          }
          CHECK(nlohmann::json(one.value()) == in_force);
        }
        ++compared;
      }
    }
  }
  CHECK(keys.size() > 30);
  CHECK(compared > 200);
}

}  // namespace lanewise
