// The override grammar, of the command line and of files with "base": every case's result, or what is said, is in
// golden/changes.txt.
#include "graph/change.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "graph/diff.h"
#include "graph/text.h"
#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

struct Case {
  std::string about;
  std::vector<Override> overrides = {};
  std::string file = kSixteen;
  std::map<std::string, std::string> bases = {};  // by their names
};

Override set(const std::string& text) { return {Override::Kind::kSet, text}; }
Override swap(const std::string& text) { return {Override::Kind::kSwap, text}; }

Plans plans_of(const Case& c) {
  PlanOptions options;
  options.overrides = c.overrides;
  for (const auto& [name, text] : c.bases) {
    options.bases[std::filesystem::absolute("configs/" + name).lexically_normal().string()] = text;
  }
  return plan_pipeline(c.file, "configs/mine.json", test_registry(), options);
}

// What a case makes different from kSixteen: of the training's plan, then of the evaluation's where that has more.
std::string outcome(const Case& c) {
  static const Plans plain = plans_of({""});
  try {
    const Plans now = plans_of(c);
    std::string text;
    const std::vector<std::string> train = plan_differences(plain.train.expanded, now.train.expanded);
    for (const std::string& line : train) text += "  " + line + "\n";
    if (!now.evaluate) return text + "  no evaluation\n";
    for (const std::string& line : plan_differences(plain.evaluate->expanded, now.evaluate->expanded)) {
      if (std::find(train.begin(), train.end(), line) == train.end()) text += "  evaluation: " + line + "\n";
    }
    for (const std::string& note : now.train.notes) text += "  note: " + note + "\n";
    return text.empty() ? "  the same\n" : text;
  } catch (const Error& error) {
    std::string text = fmt::format("  exit {}: ", static_cast<int>(error.exit()));
    for (const char letter : std::string(error.what())) {
      text += letter;
      if (letter == '\n') text += "    ";
    }
    return text + "\n";
  }
}

std::string derived(const std::string& rest) { return R"({ "base": "sixteen.json", "name": "sixteen")" + rest + " }"; }

const std::vector<Case>& cases() {
  static const std::map<std::string, std::string> base{{"sixteen.json", kSixteen}};
  static const std::vector<Case> all{
      {"one instance", {set("gen3.step=0.25")}},
      {"one instance in brackets", {set("gen[3].step=0.25")}},
      {"some instances, both ends included", {set("gen[1..2].step=0.25")}},
      {"all instances", {set("lane[*].loss=huber")}},
      {"later ones win", {set("norm[0..1].factor=2"), set("norm1.factor=3")}},
      {"a range beyond the last", {set("gen[8..16].step=0.25")}},
      {"a range that goes backwards", {set("gen[3..1].step=0.25")}},
      {"no range", {set("gen[a].step=0.25")}},
      {"brackets behind an instance", {set("gen3[0].step=0.25")}},
      {"the device of some", {set("lane[6..7].device=cpu:1")}},
      {"a setting, a model's parameter, the name",
       {set("run.seed=8"), set("models.net.hidden=[3]"), set("evaluate.every=5")}},
      {"adding what is not given", {set("+run.steps=50"), set("+gen.step=0.5"), set("+models.net.layers=2")}},
      {"adding what is given", {set("+run.seed=8"), set("+gen[2..3].rows=1:2"), set("+models.net.hidden=[1]")}},
      {"adding what each instance is given", {set("+gen.seed=1")}},
      {"taking out", {set("~run.seed"), set("~gen[14..15].rows"), set("~opt.lr"), set("~gen0.seed")}},
      {"taking out what is not given",
       {set("~run.steps"), set("~gen.step"), set("~norm.facter"), set("~lane3.device")}},
      {"taking out and giving again", {set("~gen.rows"), set("+gen.rows=5:")}},
      {"taking out with a value", {set("~gen.rows=5")}},
      {"taking all models out at once", {set("~models")}},
      {"adding all models at once", {set("+models={\"a\":{\"type\":\"mlp\"}}")}},
      {"taking the device out", {set("~lane.device")}},
      {"taking out the evaluation", {set("~evaluate")}},
      {"changes of the evaluation", {set("~evaluate.set.gen3.step"), set("+evaluate.set.norm[0..1].factor=4")}},
      {"a change of the evaluation that is not there", {set("~evaluate.set.gen4.step")}},
      {"adding a node", {set(R"(+tap={"type":"log","in":[{"from":"lane.prediction"}]})")}},
      {"adding a node that is there", {set(R"(+norm={"type":"log"})")}},
      {"adding a node that is wrong", {set(R"(+tap={"tpye":"log"})"), set("+top=5")}},
      {"adding a model", {set(R"(+models.big={"type":"mlp","hidden":[64]})"), set("lane[4..7].model=big")}},
      {"taking out a node that others need", {set("~norm")}},
      {"taking out an instance", {set("~gen3")}},
      {"taking out a model", {set("~models.net")}},
      {"a whole node without a sign", {set("gen={}"), set("lane.loss=huber")}},
      {"no key", {set("=5")}},
      {"an empty step", {set("run..steps=5")}},
      {"a swap keeps what fits, and lists what does not",
       {swap(R"(gen={"type":"wave","params":{"period":9}})"), set("run.steps=5")}},
      {"a swap keeps what is given in each, and earlier changes",
       {swap(R"(gen={"type":"count","params":{"features":2}})")},
       derived(R"(, "set": { "gen3.step": 0.75, "gen4.features": 9 })"),
       base},
      {"a swap of a model", {swap(R"(models.net={"type":"mlp","layers":3})")}},
      {"a swap of nothing there", {swap(R"(models.nte={"type":"mlp"})"), swap(R"(gen[0..3]={"type":"wave"})")}},
      {"a file that changes another", {}, derived(R"(, "set": { "lane.loss": "huber", "~run.seed": null })"), base},
      {"values of a file keep their types", {}, derived(R"(, "set": { "run.steps": "5", "norm.factor": 2 })"), base},
      {"the command line comes last",
       {set("gen[0..1].step=0.125")},
       derived(R"(, "set": { "gen[0..3].step": 0.5 })"),
       base},
      {"a change of a changed file",
       {},
       R"({ "base": "middle.json", "name": "sixteen", "set": { "norm.factor": 3 } })",
       {{"sixteen.json", kSixteen}, {"middle.json", derived(R"(, "set": { "norm.factor": 2, "run.seed": 9 })")}}},
      {"a file that stands on itself", {}, R"({ "base": "mine.json" })"},
      {"a base that is not there", {}, R"({ "base": "nowhere.json" })"},
      {"a base that is no file", {}, R"({ "base": "data" })"},
      {"a file with sections of its own", {}, derived(R"(, "run": { "steps": 5 }, "nodes": [], "sets": {})"), base},
      {"mistakes in three places",
       {set("gen.stepp=1")},
       derived(R"(,
  "set": { "lane.los": "mae",
           "gen[99].step": 1 })"),
       {{"sixteen.json", std::string(kSixteen).replace(std::string(kSixteen).find("\"lr\""), 4, "\"rl\"")}}},
  };
  return all;
}

}  // namespace

TEST_CASE("change: the grammar of --set, --swap and files with a base gives these results and messages") {
  REQUIRE(cases().size() >= 30);
  std::string text;
  for (const Case& c : cases()) {
    text += c.about + "\n";
    for (const Override& change : c.overrides) {
      text += fmt::format("{} {}\n", change.kind == Override::Kind::kSet ? "--set" : "--swap", change.text);
    }
    if (c.file != kSixteen) text += c.file + "\n";
    text += outcome(c) + "\n";
  }
  check_golden("graph/golden/changes.txt", text);
}

TEST_CASE("change: a plan made again from what it was made from is the same, without its files") {
  const Case c{
      "", {set("gen0.step=0.5")}, derived(R"(, "set": { "lane.loss": "huber" })"), {{"sixteen.json", kSixteen}}};
  const Plans first = plans_of(c);
  PlanOptions again;
  again.overrides = first.source.overrides;
  again.bases = first.source.bases;
  const Plans second = plan_pipeline(first.source.text, first.source.file, test_registry(), again);
  CHECK(first.train.digest == second.train.digest);
  CHECK(first.train.digest != plans_of({""}).train.digest);
}

}  // namespace lanewise
