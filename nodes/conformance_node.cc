// The rules of nodes. A node is fired by hand, with the samples of ar1 sources where it has inputs.
#include <ATen/ATen.h>

#include <algorithm>
#include <thread>

#include "nodes/builtin.h"
#include "nodes/conformance_rules.h"
#include "nodes/node_runner.h"
#include "runtime/fit.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

using Firings = std::vector<std::vector<Packet>>;  // inputs, one set a firing

constexpr const char* kNode = "node0";
constexpr int kSamples = 30;  // of a pass over a source

bool is_run_by_hand(const NodeType& type) {
  return !type.internal &&
         (type.role == Role::kSource || type.role == Role::kJoin ||
          (type.role == Role::kPerSample && type.inputs.size() == 1 && type.inputs[0].carries == "sample"));
}

// A packet as text, bit for bit.
std::string text(const std::optional<Packet>& packet) {
  if (!packet) return "nothing";
  if (packet->is_end()) return "an end";
  if (packet->holds<Sample>()) {
    const Sample& s = packet->get<Sample>();
    return fmt::format("{} | {} {} {}", text(s.tag), save_tensor(s.x).dump(), save_tensor(s.y).dump(),
                       save_tensor(s.known).dump());
  }
  const Batch& batch = packet->get<Batch>();
  std::string all = save_tensor(batch.x).dump() + save_tensor(batch.y).dump();
  for (const Tag& tag : batch.rows) all += text(tag);
  return all;
}

// The tag of a packet, or of a batch's first row.
const Tag& tag_of(const Packet& packet) {
  return packet.holds<Batch>() ? packet.get<Batch>().rows.at(0) : packet.get<Sample>().tag;
}

std::string shown(const std::optional<Packet>& packet) {
  return packet && !packet->is_end() ? text(tag_of(*packet)) : text(packet);
}

class NodeCheck {
 public:
  NodeCheck(const NodeType& type, nlohmann::json params, const RuleBegins& begins)
      : type_(type), params_(std::move(params)), rules_(begins) {}

  Conformance check() {
    rules_.rule("has ports that suit its role, and makes nodes", [&] { return has_ports(); });
    const bool sound = check_parameters(rules_, type_.name, type_.help, type_.fields, params_);
    if (!sound) return rules_.result;
    if (!is_run_by_hand(type_)) {
      rules_.result.untried = "the rest shows in a whole pipeline only";
      return rules_.result;
    }
    if (!rules_.rule("tells before a run what it will send, and can be made", [&] { return can_be_made(); }))
      return rules_.result;  // there is nothing to try
    rules_.rule("sends the shapes that it told, in the run's dtype", [&] { return sends_what_it_told(); });
    rules_.rule("numbers what it sends from 0, without a gap", [&] { return numbers(); });
    rules_.rule("sends, absorbs or holds each sample that it was given", [&] { return accounts(); });
    rules_.rule("ends once, when its stream does", [&] { return ends(); });
    rules_.rule("gives the same for the same seed, also a second later", [&] { return is_determined(); });
    rules_.rule("shares nothing with another node of its type", [&] { return is_alone(); });
    for (const bool evaluating : {false, true}) {
      rules_.rule(fmt::format("goes on from a saved state bit for bit{}", evaluating ? ", in an evaluation, too" : ""),
                  [&] { return is_restored(evaluating); });
    }
    if (type_.role != Role::kJoin) rules_.rule("drops as many samples as it is told to skip", [&] { return skips(); });
    rules_.rule("changes nothing of what it was handed, and nothing of what it has sent",
                [&] { return leaves_alone(); });
    rules_.rule("keeps a bounded number of samples and a bounded state", [&] { return is_bounded(); });
    if (type_.role == Role::kSource)
      rules_.rule("sends fillers of weight 0 after its end under `mask`", [&] { return is_masked(); });
    time();
    return rules_.result;
  }

 private:
  std::string has_ports() const {
    if ((type_.role == Role::kSource) != type_.inputs.empty()) return "a source has no inputs, and all else has some";
    if ((type_.role == Role::kSink) != type_.outputs.empty()) return "a sink has no outputs, and all else has some";
    for (const Port& port : type_.outputs) {
      if (port.many) return fmt::format("its output {} is said to be many", port.name);
    }
    return type_.make == nullptr || type_.infer == nullptr ? "it has no make or no infer" : "";
  }

  // A plan around the node, with as many streams above it as it needs.
  std::unique_ptr<Bench> bench(SourceRules rules = {.end_rule = "restart"}, const nlohmann::json& more = {}) const {
    nlohmann::json params = params_;
    if (more.is_object()) params.update(more);
    params = all_params(type_.name, type_.fields, params);
    const nlohmann::json stream = {{"features", 2}, {"samples", kSamples}};
    std::vector<BenchNode> parts;
    std::vector<std::string> above;
    for (std::size_t i = 0; type_.role != Role::kSource && i < (type_.inputs[0].many ? 2u : 1u); ++i) {
      above.push_back(fmt::format("gen{}", i));
      parts.push_back({above.back(), ar1(), stream});
    }
    parts.push_back({kNode, type_, params, above});
    auto bench = std::make_unique<Bench>(parts, rules);
    fit_normalizers(bench->plan, bench->services, bench->normalization, [] {});
    return bench;
  }

  static Firings inputs_for(const Bench& bench, int firings) {
    Firings all(static_cast<std::size_t>(firings));
    for (const int edge : bench.node(kNode).inputs) {
      NodeRunner gen(bench, bench.plan.nodes[bench.plan.edges[edge].from].id);
      for (auto& inputs : all) inputs.push_back(*gen.fire().packet);
    }
    return all;
  }

  static std::vector<std::string> run(NodeRunner& node, const Firings& inputs, std::size_t from, std::size_t to) {
    std::vector<std::string> lines;
    for (std::size_t i = from; i < to; ++i) lines.push_back(text(node.fire(inputs[i]).packet));
    return lines;
  }

  // "" or the first firing in which two runs differ.
  static std::string compared(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] != second[i]) return fmt::format("they differ from firing {} on", i);
    }
    return "";
  }

  std::string can_be_made() const {
    const auto made = bench();
    if (!made->problems.empty()) return made->problems.front().rule;
    const auto& signatures = made->node(kNode).signatures;
    if (signatures.size() != type_.outputs.size()) return "it does not tell one signature an output";
    const bool may_ask = type_.fed;  // what it sends is known where it runs
    if (!may_ask && (!signatures[0].x || !signatures[0].y))
      return "it tells no shape, though that of its input is known";
    if (signatures[0].streams.empty()) return "it does not tell whose samples it sends";
    NodeRunner(*made, kNode);
    return "";
  }

  std::string sends_what_it_told() const {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const auto made = bench({.dtype = dtype, .end_rule = "restart"});
      const Signature& told = made->node(kNode).signatures[0];
      NodeRunner node(*made, kNode);
      int sent = 0;
      for (const auto& inputs : inputs_for(*made, 20)) {
        const Fired fired = node.fire(inputs);
        if (!fired.packet) continue;
        ++sent;
        const bool batch = fired.packet->holds<Batch>();
        const at::Tensor x = batch ? fired.packet->get<Batch>().x : fired.packet->get<Sample>().x;
        const at::Tensor y = batch ? fired.packet->get<Batch>().y : fired.packet->get<Sample>().y;
        const auto shape = [&](const at::Tensor& t) { return batch ? t.sizes().slice(2).vec() : t.sizes().vec(); };
        if (told.x && shape(x) != *told.x)
          return fmt::format("x is {}, and it told {}", to_string(shape(x)), to_string(*told.x));
        if (told.y && shape(y) != *told.y)
          return fmt::format("y is {}, and it told {}", to_string(shape(y)), to_string(*told.y));
        const at::ScalarType target = told.integer_target ? at::kLong : dtype;
        if (x.scalar_type() != dtype)
          return fmt::format("x is {} in a run of {}", c10::toString(x.scalar_type()), c10::toString(dtype));
        if (y.scalar_type() != target)
          return fmt::format("y is {} where it told {}", c10::toString(y.scalar_type()), c10::toString(target));
        if (batch && fired.packet->get<Batch>().rows.size() != told.streams.size())
          return "a batch has not one row a stream";
      }
      if (sent == 0) return "it sent nothing in 20 firings";
    }
    return "";
  }

  std::string numbers() const {
    const auto made = bench();
    NodeRunner node(*made, kNode);
    std::uint64_t due = 0;
    for (const auto& inputs : inputs_for(*made, 40)) {
      const Fired fired = node.fire(inputs);
      if (!fired.packet) continue;
      const std::uint64_t seq = tag_of(*fired.packet).seq;
      if (seq != due) return fmt::format("seq {} came where {} was due", seq, due);
      ++due;
    }
    return "";
  }

  std::string accounts() const {
    const auto made = bench();
    NodeRunner node(*made, kNode);
    std::uint64_t taken = 0, told = 0;
    for (const auto& inputs : inputs_for(*made, 40)) {
      const Fired fired = node.fire(inputs);
      ++taken;
      told += fired.absorbed + (fired.packet ? 1 : 0);
    }
    const std::uint64_t held = node.node().held();
    if (taken == told + held) return "";
    return fmt::format("of {} firings {} sent or absorbed something, and {} are held", taken, told, held);
  }

  std::string ends() const {
    if (type_.role == Role::kSource) return source_ends();
    const auto made = bench();
    NodeRunner node(*made, kNode);
    for (const auto& inputs : inputs_for(*made, 40)) {
      if (node.fire(inputs).ended) return "it ended while its stream went on";
    }
    const Fired last = node.fire(Firings::value_type(made->node(kNode).inputs.size()));
    if (!last.ended) return "its stream ended, and it did not pass the end on";
    const bool cut = last.packet && last.packet->holds<Batch>() && last.packet->get<Batch>().cut;
    if (type_.role == Role::kJoin && !cut) return "it did not say with the end that a batch is cut";
    if (type_.role != Role::kJoin && last.packet) return "it sent something together with the end";
    return "";
  }

  bool has_length() const {
    return std::ranges::any_of(describe(type_.fields), [](const FieldInfo& info) { return info.name == "samples"; });
  }

  // As a source of `count` samples; as it is where it cannot be told how many.
  std::unique_ptr<Bench> short_source(const std::string& end_rule, int count) const {
    return bench({.end_rule = end_rule}, has_length() ? nlohmann::json{{"samples", count}} : nlohmann::json());
  }

  std::string source_ends() const {
    const auto made = short_source("first", 5);
    const Signature& told = made->node(kNode).signatures[0];
    if (told.endless || !told.length) return "";
    NodeRunner node(*made, kNode);
    const auto sent = static_cast<std::int64_t>(node.take(static_cast<int>(*told.length) + 10).size());
    return sent == *told.length ? "" : fmt::format("it sent {} samples and told {}", sent, *told.length);
  }

  std::string is_masked() const {
    const auto made = short_source("mask", 5);
    const Signature& told = made->node(kNode).signatures[0];
    if (told.endless || !told.length) return "";
    const auto length = static_cast<std::size_t>(*told.length);
    NodeRunner node(*made, kNode);
    const std::vector<Sample> samples = node.take(static_cast<int>(length) + 3);
    if (samples.size() != length + 3) return "it ended";
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Sample& s = samples[i];
      if (s.tag.filler != (i >= length) || s.tag.ended != (i >= length))
        return fmt::format("sample {} of {} is {}a filler", i, length, s.tag.filler ? "" : "not ");
      if (s.x.sizes() != samples[0].x.sizes() || s.y.sizes() != samples[0].y.sizes())
        return "a filler has another shape";
      if (s.tag.filler && (s.tag.weight != 0 || s.x.abs().sum().item<double>() != 0)) return "a filler is not 0";
    }
    return "";
  }

  std::string is_determined() const {
    const auto one = bench(), two = bench();
    NodeRunner first(*one, kNode), second(*two, kNode);
    const auto before = run(first, inputs_for(*one, 40), 0, 40);
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // what goes by a clock of seconds shows, too
    return compared(before, run(second, inputs_for(*two, 40), 0, 40));
  }

  std::string is_alone() const {
    const auto made = bench();
    const Firings inputs = inputs_for(*made, 40);
    std::vector<std::string> alone, beside;
    {
      NodeRunner node(*made, kNode);
      alone = run(node, inputs, 0, 20);
    }
    const auto own = bench(), others = bench();
    NodeRunner node(*own, kNode), other(*others, kNode);
    for (std::size_t i = 0; i < 20; ++i) {
      beside.push_back(text(node.fire(inputs[i]).packet));
      for (const std::size_t k : {2 * i, 2 * i + 1}) other.fire(inputs[k]);
    }
    return compared(alone, beside);
  }

  std::string is_restored(bool evaluating) const {
    const auto made =
        bench(evaluating ? SourceRules{.end_rule = "mask", .evaluating = true} : SourceRules{.end_rule = "restart"});
    const Firings inputs = inputs_for(*made, 60);
    for (const std::size_t middle : {0, 1, 17, 29, 31}) {
      NodeRunner whole(*made, kNode), rest(*made, kNode);
      run(whole, inputs, 0, middle);
      // As a checkpoint keeps it.
      rest.node().restore(nlohmann::json::from_cbor(nlohmann::json::to_cbor(whole.node().state())));
      const auto goes_on = run(whole, inputs, middle, 60), restored = run(rest, inputs, middle, 60);
      if (const std::string why = compared(goes_on, restored); !why.empty())
        return fmt::format("saved after {} firings and restored, {}", middle, why);
    }
    return "";
  }

  std::string skips() const {
    constexpr std::size_t kMiddle = 17, kSkipped = 3;
    const auto made = bench();
    const Firings inputs = inputs_for(*made, 60);
    NodeRunner whole(*made, kNode), rest(*made, kNode);
    run(whole, inputs, 0, kMiddle);
    rest.node().restore(whole.node().state());
    if (!rest.node().skip(kSkipped)) return "it says that it cannot; a run with it is not resumed exactly";
    std::size_t sent = 0;
    for (std::size_t i = kMiddle; i < inputs.size(); ++i) {
      const Fired due = whole.fire(inputs[i]), got = rest.fire(inputs[i]);
      const bool dropped = due.packet && sent++ < kSkipped;
      if (dropped && (got.packet || got.absorbed == 0))
        return "it sent what it was to drop, or did not count it as absorbed";
      if (dropped || text(due.packet) == text(got.packet)) continue;
      const std::string sent_it = shown(got.packet), was_due = shown(due.packet);
      return fmt::format("after {} dropped ones it sent {} where {} was due", kSkipped, sent_it,
                         sent_it == was_due ? "another one" : was_due);
    }
    return "";
  }

  std::string leaves_alone() const {
    const auto made = bench();
    NodeRunner node(*made, kNode);
    const Firings inputs = inputs_for(*made, 40);  // shared with what is fired
    const auto texts = [](const Firings& firings) {
      std::vector<std::string> lines;
      for (const auto& packets : firings) {
        for (const Packet& packet : packets) lines.push_back(text(packet));
      }
      return lines;
    };
    const std::vector<std::string> before = texts(inputs);
    std::vector<std::optional<Packet>> sent;
    std::vector<std::string> sent_then;
    for (const auto& packets : inputs) {
      sent.push_back(node.fire(packets).packet);
      sent_then.push_back(text(sent.back()));
    }
    if (texts(inputs) != before) return "a sample that it was handed has changed";
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (text(sent[i]) != sent_then[i]) return fmt::format("what it sent in firing {} has changed since", i);
    }
    return "";
  }

  std::string is_bounded() const {
    const auto made = bench();
    std::vector<NodeRunner> above;
    for (const int edge : made->node(kNode).inputs)
      above.emplace_back(*made, made->plan.nodes[made->plan.edges[edge].from].id);
    NodeRunner node(*made, kNode);
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> given;
    const auto measure = [&] {
      for (int i = 0; i < 60; ++i) {
        std::vector<Packet> inputs;
        for (NodeRunner& gen : above) {
          Sample sample = gen.fire().packet->take<Sample>();
          sample.x = sample.x.clone();  // a source may keep what it gives, to use it again
          given.push_back(sample.x.storage().getWeakStorageImpl());
          inputs.push_back(Packet::of(std::move(sample)));
        }
        node.fire(std::move(inputs));
      }
      const auto kept = std::ranges::count_if(given, [](const auto& x) { return !x.expired(); });
      return std::pair<std::size_t, std::size_t>(kept, nlohmann::json::to_cbor(node.node().state()).size());
    };
    const auto [kept, state] = measure();
    const auto [kept_later, state_later] = measure();
    if (kept_later > kept + 2) return fmt::format("it keeps {} samples after 60 and {} after 120", kept, kept_later);
    if (state_later > state + state / 4 + 64)
      return fmt::format("its state has {} bytes after 60 samples and {} after 120", state, state_later);
    return "";
  }

  void time() {
    const auto made = bench();
    const Firings inputs = inputs_for(*made, 400);
    NodeRunner node(*made, kNode);
    std::size_t i = 0;
    try {
      rules_.time("a firing", [&] { node.fire(inputs[i++ % inputs.size()]); });
    } catch (...) {
      rules_.result.cost = "";  // what is wrong was told
    }
  }

  const NodeType& type_;
  const nlohmann::json params_;
  Rules rules_;
};

}  // namespace

Conformance check_node(const NodeType& type, const nlohmann::json& params, const RuleBegins& begins) {
  return NodeCheck(type, params, begins).check();
}

}  // namespace lanewise
