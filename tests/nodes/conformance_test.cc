// What every node type of the table keeps to, whoever wrote it.
#include <functional>
#include <set>

#include "nodes/builtin.h"
#include "runtime/fit.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

const nlohmann::json kNone = nlohmann::json::object();

const Registry& registry() {
  static const Registry table = builtin_registry();
  return table;
}

// Values for the parameters that have no default.
nlohmann::json required_params(const NodeType& type) {
  if (type.name == "csv") {
    return {{"path", "configs/data/flights16/OO.csv"}, {"features", {"flights", "temp"}}, {"target", {"dep_delay"}}};
  }
  if (type.name == "process")
    return {{"command", {".venv/bin/python", "tests/evil_generator.py"}}, {"x", {2}}, {"y", {1}}, {"samples", 30}};
  if (type.name == "compute") return {{"model", "net"}};
  return kNone;
}

std::vector<FieldInfo> fields_of(const NodeType& type) {
  Fields fields;
  type.fields(fields);
  return fields.infos();
}

std::vector<Problem> read(const NodeType& type, const nlohmann::json& params) {
  std::vector<Problem> problems;
  Fields fields({&params, type.name,
                 [](const std::string& key) {
                   return Place{key, key};
                 },
                 [](const std::string&) { return std::string(); }},
                problems);
  type.fields(fields);
  fields.finish();
  return problems;
}

bool takes_samples(const NodeType& type) {
  return type.role == Role::kSource || type.role == Role::kPerSample || type.role == Role::kJoin;
}

// Every type that a test can run by hand.
void each_type(const std::function<void(const NodeType&)>& test) {
  for (const NodeType& type : registry().nodes) {
    if (!takes_samples(type) || type.internal) continue;
    CAPTURE(type.name);
    test(type);
  }
}

// A plan around one node, "node0" of that type, with as many streams above it as it needs.
std::unique_ptr<Bench> bench_for(const NodeType& type, SourceRules rules = {.end_rule = "restart"}) {
  const nlohmann::json params = required_params(type), stream = {{"features", 2}, {"samples", 30}};
  std::vector<BenchNode> parts;
  if (type.role == Role::kSource) {
    parts = {{"node0", type, params}};
  } else {
    parts = {{"gen0", ar1(), stream}, {"gen1", ar1(), stream}};
    parts.push_back(
        {"node0", type, params,
         type.inputs[0].many ? std::vector<std::string>{"gen0", "gen1"} : std::vector<std::string>{"gen0"}});
  }
  auto bench = std::make_unique<Bench>(parts, rules);
  fit_normalizers(bench->plan, bench->services, bench->normalization, [] {});
  return bench;
}

// The same for each type that a test can run by hand.
void each_bench(const std::function<void(const NodeType&, const Bench&)>& test,
                const SourceRules& rules = {.end_rule = "restart"}) {
  each_type([&](const NodeType& type) { test(type, *bench_for(type, rules)); });
}

// Inputs of the node under test, one set a firing: none for a source.
std::vector<std::vector<Packet>> inputs_for(const Bench& bench, int firings) {
  std::vector<std::vector<Packet>> all(static_cast<std::size_t>(firings));
  for (const int edge : bench.node("node0").inputs) {
    NodeRunner gen(bench, bench.plan.nodes[bench.plan.edges[edge].from].id);
    for (auto& inputs : all) inputs.push_back(*gen.fire().packet);
  }
  return all;
}

std::string text(const std::optional<Packet>& packet) {
  if (!packet) return "-";
  if (packet->holds<Sample>()) {
    const Sample& s = packet->get<Sample>();
    return text(s) + fmt::format(" {} {}", save_tensor(s.x).dump(), save_tensor(s.y).dump());
  }
  const Batch& b = packet->get<Batch>();
  std::string all = save_tensor(b.x).dump() + save_tensor(b.y).dump();
  for (const Tag& tag : b.rows) all += text(tag);
  return all;
}

// Every packet of every firing.
std::vector<std::string> texts_of(const std::vector<std::vector<Packet>>& inputs) {
  std::vector<std::string> lines;
  for (const auto& packets : inputs) {
    for (const Packet& p : packets) lines.push_back(text(std::optional(p)));
  }
  return lines;
}

std::vector<std::string> run(NodeRunner& node, const std::vector<std::vector<Packet>>& inputs, std::size_t from,
                             std::size_t to) {
  std::vector<std::string> lines;
  for (std::size_t i = from; i < to; ++i) lines.push_back(text(node.fire(inputs[i]).packet));
  return lines;
}

TEST_CASE("conformance: a type says what it is, and its names are unique") {
  std::set<std::string> names;
  for (const NodeType& type : registry().nodes) {
    CAPTURE(type.name);
    CHECK(names.insert(type.name).second);
    CHECK_FALSE(type.help.empty());
    CHECK(type.make != nullptr);
    CHECK(type.infer != nullptr);
    CHECK((type.role == Role::kSource) == type.inputs.empty());
    CHECK((type.role == Role::kSink) == type.outputs.empty());
    for (const Port& port : type.outputs) CHECK_FALSE(port.many);
    std::set<std::string> fields;
    for (const FieldInfo& field : fields_of(type)) {
      CAPTURE(field.name);
      CHECK(fields.insert(field.name).second);
      CHECK_FALSE(field.help.empty());
    }
  }
}

TEST_CASE("conformance: defaults are valid, and required parameters are all that must be given") {
  for (const NodeType& type : registry().nodes) {
    CAPTURE(type.name);
    CHECK(rules_of(read(type, required_params(type))).empty());
    std::size_t required = 0;
    nlohmann::json defaults = required_params(type);
    for (const FieldInfo& field : fields_of(type)) {
      required += field.required;
      if (!field.required && !field.fallback.is_null()) defaults[field.name] = field.fallback;
    }
    CHECK(read(type, kNone).size() == required);
    CHECK(rules_of(read(type, defaults)).empty());
  }
}

TEST_CASE("conformance: a wrong type, a value out of bounds and an unknown name are refused where they stand") {
  const std::map<std::string, nlohmann::json> wrong = {
      {"integer", 3.7}, {"number", true}, {"text", 5}, {"file", 5}, {"true or false", 1}};
  int refused = 0;
  for (const NodeType& type : registry().nodes) {
    for (const FieldInfo& field : fields_of(type)) {
      CAPTURE(type.name);
      CAPTURE(field.name);
      nlohmann::json params = required_params(type);
      const auto refuses = [&](const nlohmann::json& value) {
        params[field.name] = value;
        const std::vector<Problem> problems = read(type, params);
        CHECK(problems.size() == 1);
        if (!problems.empty()) CHECK(problems[0].place.pointer.starts_with(field.name));
        ++refused;
      };
      if (const auto it = wrong.find(field.type); it != wrong.end()) refuses(it->second);
      if (field.type == "integer" && field.low) refuses(static_cast<std::int64_t>(*field.low) - 1);
      if (field.type == "number" && field.low) refuses(*field.low - 1);
      if (field.type == "number" && field.high) refuses(*field.high + 1);
      if (!field.choices.empty() && field.type == "text") refuses("none of these");
    }
    nlohmann::json params = required_params(type);
    params["no_such_parameter"] = 1;
    CHECK(read(type, params).size() == 1);
  }
  CHECK(refused > 60);
}

TEST_CASE("conformance: what a node sends is what its signature says, and its defaults have no problem") {
  each_bench([](const NodeType& type, const Bench& bench) {
    CHECK(rules_of(bench.problems).empty());
    const Signature& signature = bench.node("node0").signatures.at(0);
    NodeRunner node(bench, "node0");
    int sent = 0;
    for (const std::vector<Packet>& inputs : inputs_for(bench, 20)) {
      const Fired fired = node.fire(inputs);
      if (!fired.packet) continue;
      ++sent;
      if (type.role == Role::kJoin) {
        CHECK(fired.packet->get<Batch>().x.sizes().slice(2).vec() == *signature.x);
        CHECK(fired.packet->get<Batch>().rows.size() == signature.streams.size());
      } else {
        CHECK(shape_of(fired.sample()->x) == *signature.x);
        CHECK(shape_of(fired.sample()->y) == *signature.y);
      }
    }
    CHECK(sent > 0);
  });
}

TEST_CASE("conformance: the same seed gives the same packets") {
  each_type([](const NodeType& type) {
    const std::unique_ptr<Bench> a = bench_for(type), b = bench_for(type);
    NodeRunner first(*a, "node0"), second(*b, "node0");
    CHECK(run(first, inputs_for(*a, 40), 0, 40) == run(second, inputs_for(*b, 40), 0, 40));
  });
}

TEST_CASE("conformance: a node restored midway goes on as the one it was saved from") {
  for (const SourceRules& rules :
       {SourceRules{.end_rule = "restart"}, SourceRules{.end_rule = "mask", .evaluating = true}}) {
    each_bench(
        [](const NodeType&, const Bench& bench) {
          const std::vector<std::vector<Packet>> inputs = inputs_for(bench, 60);
          for (const std::size_t middle : {0, 1, 17, 29, 31}) {
            CAPTURE(middle);
            NodeRunner whole(bench, "node0"), rest(bench, "node0");
            run(whole, inputs, 0, middle);
            // As a checkpoint keeps it.
            rest.node().restore(nlohmann::json::from_cbor(nlohmann::json::to_cbor(whole.node().state())));
            CHECK(run(whole, inputs, middle, 60) == run(rest, inputs, middle, 60));
          }
        },
        rules);
  }
}

TEST_CASE("conformance: a node changes nothing of what it is handed, and nothing of what it has sent") {
  each_bench([](const NodeType&, const Bench& bench) {
    NodeRunner node(bench, "node0");
    const std::vector<std::vector<Packet>> inputs = inputs_for(bench, 40);  // shared with what is fired
    const std::vector<std::string> before = texts_of(inputs);
    std::vector<std::string> sent_then, sent_now;
    std::vector<std::optional<Packet>> sent;
    for (const auto& packets : inputs) {
      sent.push_back(node.fire(packets).packet);
      sent_then.push_back(text(sent.back()));
    }
    for (const auto& packet : sent) sent_now.push_back(text(packet));
    CHECK(texts_of(inputs) == before);
    CHECK(sent_then == sent_now);
  });
}

TEST_CASE("conformance: the end passes through, and what leaves is numbered from 0 without a gap") {
  each_bench([](const NodeType& type, const Bench& bench) {
    NodeRunner node(bench, "node0");
    std::uint64_t due = 0;
    std::uint64_t taken = 0, absorbed = 0;
    for (const auto& inputs : inputs_for(bench, 40)) {
      const Fired fired = node.fire(inputs);
      CHECK_FALSE(fired.ended);
      ++taken;
      absorbed += fired.absorbed;
      if (!fired.packet) continue;
      const Tag& tag =
          fired.packet->holds<Batch>() ? fired.packet->get<Batch>().rows[0] : fired.packet->get<Sample>().tag;
      CHECK(tag.seq == due++);
    }
    CHECK(taken == due + absorbed);
    if (type.role == Role::kSource) return;
    const Fired last = node.fire(std::vector<Packet>(bench.node("node0").inputs.size()));
    CHECK(last.ended);
    if (type.role == Role::kPerSample) CHECK_FALSE(last.packet);
    if (type.role == Role::kJoin) CHECK(last.packet->get<Batch>().cut);
  });
}

TEST_CASE("conformance: a source that ends ends, and one that is masked sends fillers that touch nothing") {
  for (const NodeType& type : registry().nodes) {
    if (type.role != Role::kSource) continue;
    CAPTURE(type.name);
    nlohmann::json params = required_params(type);
    if (type.name != "csv") params["samples"] = 5;
    if (type.name == "csv") params["rows"] = "1:6";
    const Bench first({{"node0", type, params}}, {.end_rule = "first"}),
        mask({{"node0", type, params}}, {.end_rule = "mask"});
    NodeRunner ends(first, "node0"), masked(mask, "node0");
    CHECK(ends.take(100).size() == 5);
    const std::vector<Sample> samples = masked.take(8);
    for (std::size_t i = 0; i < 8; ++i) {
      CHECK(samples[i].tag.filler == (i >= 5));
      CHECK(samples[i].tag.ended == (i >= 5));
      CHECK(samples[i].x.sizes() == samples[0].x.sizes());
      CHECK(samples[i].y.sizes() == samples[0].y.sizes());
      if (i >= 5) CHECK((samples[i].tag.weight == 0 && samples[i].x.abs().sum().item<double>() == 0));
    }
  }
}

}  // namespace
}  // namespace lanewise
