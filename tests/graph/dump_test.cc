#include "graph/dump.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <set>

#include "graph/spec.h"
#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

Plans plans_of(const std::string& text) { return plan_pipeline(text, "f", test_registry(), {}); }

FlowReport counted_report(const Plan& plan) {
  FlowReport report;
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    EdgeReport edge;
    edge.from = plan.nodes[plan.edges[i].from].id;
    edge.to = plan.nodes[plan.edges[i].to].id;
    edge.capacity = plan.edges[i].capacity;
    edge.deepest = static_cast<int>(i % 3);
    edge.put = 100 + i;
    edge.taken = 100;
    edge.left = i;
    edge.starved_s = 0.25;
    edge.blocked_s = 0.001 * static_cast<double>(i);
    report.edges.push_back(edge);
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    NodeReport node;
    node.id = plan.nodes[i].id;
    node.fired = 10 * i;
    node.busy = 0.5;
    node.starved = 0.3;
    node.blocked = 0.2;
    report.nodes.push_back(node);
  }
  return report;
}

TEST_CASE("dump: sixteen streams in eight lanes as text, DOT and JSON, before a run and after") {
  const Plans plans = plans_of(kSixteen);
  const FlowReport report = counted_report(plans.train);
  check_golden("graph/golden/sixteen.txt", dump_text(plans.train));
  check_golden("graph/golden/sixteen_after.txt", dump_text(plans.train, &report));
  check_golden("graph/golden/sixteen_evaluation.txt", dump_text(*plans.evaluate));
  check_golden("graph/golden/sixteen.dot", dump_dot(plans.train));
  check_golden("graph/golden/sixteen_after.dot", dump_dot(plans.train, &report));
  check_golden("graph/golden/sixteen.json", dump_json(plans.train).dump(1) + "\n");
}

TEST_CASE("dump: the counters of a run are in the JSON of every edge and node") {
  const Plan plan = plans_of(kSixteen).train;
  const FlowReport report = counted_report(plan);
  const auto json = dump_json(plan, &report);
  CHECK(json.at("edges").at(5).at("put") == 105);
  CHECK(json.at("edges").at(5).at("left") == 5);
  CHECK(json.at("nodes").at(4).at("fired") == 40);
  CHECK_FALSE(dump_json(plan).at("edges").at(5).contains("put"));
}

TEST_CASE("dump: instances that differ have rows of their own") {
  check_golden("graph/golden/uneven.txt", dump_text(plans_of(R"({
    "name": "uneven",
    "nodes": [
      { "id": "gen", "repeat": 5, "type": "count", "each": { "features": [1, 1, 1, 1, 2] } },
      { "id": "pair", "repeat": 3, "type": "pair", "in": [ { "from": "gen", "take": 2 } ] } ],
    "run": { "steps": 1 } })")
                                                        .train));
}

// Reads DOT as its grammar has it: names in quotes, where only \" is an escape, or between < and >.
class DotReader {
 public:
  explicit DotReader(const std::string& text) : text_(text) {
    expect("digraph ");
    graph = id();
    expect(" {\n  rankdir=LR;\n  node [shape=box];\n");
    while (!accept("}\n")) {
      expect("  ");
      const std::string name = id();
      if (accept(" -> ")) {
        edges.insert({name, id()});
      } else {
        CHECK(nodes.emplace(name, "").second);
      }
      expect(" [label=");
      nodes[name] = id();
      while (!accept("];\n")) ++at_;
    }
    CHECK(at_ == text_.size());
  }

  std::string graph;
  std::map<std::string, std::string> nodes;  // label by id
  std::multiset<std::pair<std::string, std::string>> edges;

 private:
  bool accept(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void expect(const std::string& word) {
    REQUIRE_MESSAGE(accept(word), "expected " << word << " in " << text_.substr(at_, 60));
  }
  std::string id() {
    std::string out;
    if (accept("<")) {
      while (text_.at(at_) != '>') out += text_[at_++];
      ++at_;
      return out;
    }
    expect("\"");
    while (text_.at(at_) != '"') {
      if (text_[at_] == '\\' && text_.at(at_ + 1) == '"') {
        ++at_;
      } else if (text_[at_] == '\\' && text_.at(at_ + 1) == '\\') {
        out += text_[at_++];
      }
      out += text_[at_++];
    }
    ++at_;
    return out;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

TEST_CASE("dump: odd names survive in DOT, JSON and text") {
  const std::vector<std::string> names{"6\"",  "a\\",       "\\\\",  "::",  "A\\A", "x -> y", "é",
                                       "node", "</script>", "a\\\"", "<b>", "&lt;", "\\n",    "{}|"};
  nlohmann::json file{{"run", {{"steps", 1}}}, {"name", "odd \"\\ name"}};
  nlohmann::json in = nlohmann::json::array();
  for (const std::string& name : names) {
    file["nodes"].push_back({{"id", name}, {"type", "count"}});
    in.push_back({{"from", name}});
  }
  file["nodes"].push_back({{"id", "all"}, {"type", "pair"}, {"in", in}});
  const Plan plan = plans_of(file.dump()).train;

  const DotReader dot(dump_dot(plan));
  CHECK(dot.graph == "odd \"\\ name");
  CHECK(dot.nodes.size() == names.size() + 1);
  CHECK(dot.edges.size() == names.size());
  const auto json = nlohmann::json::parse(dump_json(plan).dump());
  const std::string text = dump_text(plan);
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(dot.nodes.contains(names[i]));
    CHECK(dot.edges.contains({names[i], "all"}));
    CHECK(json.at("nodes").at(i).at("id") == names[i]);
    CHECK(text.find("\n" + names[i] + "  ") != std::string::npos);
  }
}

}  // namespace
}  // namespace lanewise
