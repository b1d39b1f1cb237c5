#include "graph/diff.h"

#include <doctest/doctest.h>

#include "graph/spec.h"
#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

Plan plan_of(const std::vector<Override>& overrides) {
  PlanOptions options;
  options.overrides = overrides;
  return plan_pipeline(kSixteen, "configs/mine.json", test_registry(), options).train;
}

// One of everything: a swap, a node more and one less, others' wiring, shapes, a model, settings, one instance alone.
Plan changed() {
  using enum Override::Kind;
  return plan_of({{kSwap, R"(norm={"type":"scale","params":{"centre":true}})"},
                  {kSet, R"(+tap={"type":"log","in":[{"from":"lane.prediction"}]})"},
                  {kSet, "gen.features=6"},
                  {kSet, "gen3.step=0.5"},
                  {kSet, "gen[*].seed=1"},
                  {kSet, "lane[6..7].device=cpu:0"},
                  {kSet, "models.net.hidden=[16]"},
                  {kSet, R"(+models.other={"type":"mlp"})"},
                  {kSet, "~opt.lr"},
                  {kSet, "run.steps=10"},
                  {kSet, "~evaluate"}});
}

}  // namespace

TEST_CASE("diff: what two plans do not share is told by role, as text, JSON and DOT") {
  const Plan before = plan_of({}), now = changed();
  const PlanDiff diff = diff_plans(before, now);
  CHECK_FALSE(diff.equal());
  check_golden("graph/golden/diff.txt", diff_text(diff));
  check_golden("graph/golden/diff.json", diff_json(diff).dump(1) + "\n");
  check_golden("graph/golden/diff.dot", diff_dot(before, now, diff));
}

TEST_CASE("diff: backwards, what was added was removed, and every value changes sides") {
  const PlanDiff there = diff_plans(plan_of({}), changed()), back = diff_plans(changed(), plan_of({}));
  REQUIRE(there.parts.size() == back.parts.size());
  for (const PartDiff& part : there.parts) {
    const auto other = std::find_if(back.parts.begin(), back.parts.end(), [&](const PartDiff& candidate) {
      return candidate.id == part.id && candidate.section == part.section;
    });
    REQUIRE(other != back.parts.end());
    CHECK((part.kind == PartDiff::Kind::kAdded) == (other->kind == PartDiff::Kind::kRemoved));
    REQUIRE(part.differences.size() == other->differences.size());
    for (std::size_t i = 0; i < part.differences.size(); ++i) {
      CHECK(part.differences[i].before == other->differences[i].now);
      CHECK(part.differences[i].now == other->differences[i].before);
    }
  }
}

TEST_CASE("diff: a plan and itself are the same") {
  const PlanDiff diff = diff_plans(changed(), changed());
  CHECK(diff.equal());
  CHECK(diff_text(diff) == "the plans are the same\n");
  CHECK(diff_json(diff).at("equal") == true);
}

TEST_CASE("diff: an input that takes another instance is rewired") {
  std::string crossed = kSixteen;
  const std::string all = R"("in": [ { "from": "norm", "take": 2, "capacity": 4 } ])";
  crossed.replace(crossed.find(all), all.size(), R"("in": [ { "from": "norm", "take": 2, "capacity": 3 } ])");
  const Plan now = plan_pipeline(crossed, "f", test_registry(), {}).train;
  CHECK(diff_text(diff_plans(plan_of({}), now)) ==
        "~ join pair (pair)\n"
        "    inputs: [\"2 x norm.sample -> samples, capacity 4\"] -> [\"2 x norm.sample -> samples, capacity 3\"]\n");
}

}  // namespace lanewise
