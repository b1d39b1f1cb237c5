// Every built-in type keeps to the rules of its kind; that the rules catch those that do not is in
// tests/product/check_node_test.cc.
#include "nodes/conformance.h"

#include <fmt/format.h>

#include <set>

#include "nodes/builtin.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "tests/check.h"

namespace lanewise {
namespace {

// Values for the parameters that have no default.
nlohmann::json required_params(const std::string& type) {
  if (type == "csv")
    return {{"path", "configs/data/flights16/OO.csv"}, {"features", {"flights", "temp"}}, {"target", {"dep_delay"}}};
  if (type == "process")
    return {{"command", {".venv/bin/python", "tests/evil_generator.py"}}, {"x", {2}}, {"y", {1}}, {"samples", 30}};
  if (type == "compute") return {{"model", "net"}};
  if (type == "torchscript") return {{"path", "net.pt"}};
  return nlohmann::json::object();
}

void check(const std::string& name, const Conformance& conformance, std::size_t least) {
  CAPTURE(name);
  for (const Finding& finding : conformance.findings)
    CHECK_MESSAGE(finding.why_not.empty(), finding.rule << ": " << finding.why_not);
  CHECK(conformance.findings.size() >= least);
}

TEST_CASE("conformance: every node type keeps to the rules, those that a test can run by hand to all of them") {
  int by_hand = 0;
  for (const NodeType& type : builtin_registry().nodes) {
    const Conformance found = check_node(type, required_params(type.name));
    check(type.name, found, 4);
    by_hand += found.findings.size() > 4;
  }
  CHECK(by_hand == 10);
}

TEST_CASE("conformance: every model keeps to the rules, also with more layers and other sizes") {
  for (const ModelType& type : model_types())
    check(type.name, check_model(type, required_params(type.name)), type.load ? 3 : 12);
  check("gru", check_model(model_type("gru"), {{"layers", 2}, {"hidden", 5}, {"dropout", 0.5}}), 12);
  check("mlp", check_model(model_type("mlp"), {{"hidden", {7, 5}}, {"activation", "silu"}, {"kernel", "native"}}), 12);
}

TEST_CASE("conformance: every loss keeps to the rules") {
  for (const LossType& type : loss_types()) check(type.name, check_loss(type), type.load ? 3 : 10);
}

TEST_CASE("conformance: names are unique, and what is built in is of no plugin") {
  const Registry registry = builtin_registry();
  std::set<std::string> names;
  for (const NodeType& type : registry.nodes) {
    CHECK(names.insert(type.name).second);
    CHECK(type.plugin == "");
  }
}

}  // namespace
}  // namespace lanewise
