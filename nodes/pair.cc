// pair: one batch of one sample from each of n streams, row i being input i; with run.tbptt k, of k samples of each,
// one time step after the other. Samples are matched by seq, never by arrival. The first run.burn_in samples of a
// sequence weigh 0.
//
// Where the streams tell the time, their clocks must run alike: after some samples the usual step of time (the median)
// of one stream may not exceed another's by half, unless "match": "seq" says that time does not matter.
//
// When a stream ends, the pair sends one batch without tensors that names it and holds the tags of what the others had.
#include <ATen/ATen.h>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "runtime/services.h"
#include "runtime/tensor_ring.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

constexpr std::size_t kClockSteps = 16;  // steps of time after which clocks are compared
constexpr double kClockRatio = 1.5;

nlohmann::json save_sample(const Sample& s) {
  return {{"x", save_tensor(s.x)},  {"y", save_tensor(s.y)},
          {"stream", s.tag.stream}, {"run", s.tag.run},
          {"seq", s.tag.seq},       {"time", s.tag.time ? nlohmann::json(*s.tag.time) : nlohmann::json()},
          {"start", s.tag.start},   {"filler", s.tag.filler},
          {"ended", s.tag.ended},   {"weight", s.tag.weight}};
}

Sample load_sample(const nlohmann::json& saved) {
  const nlohmann::json& time = saved.at("time");
  return {.x = load_tensor(saved.at("x")),
          .y = load_tensor(saved.at("y")),
          .known = {},
          .tag = {.stream = saved.at("stream"),
                  .run = saved.at("run"),
                  .seq = saved.at("seq"),
                  .time = time.is_null() ? std::nullopt : std::optional<std::int64_t>(time),
                  .start = saved.at("start"),
                  .filler = saved.at("filler"),
                  .ended = saved.at("ended"),
                  .weight = saved.at("weight"),
                  .record = nullptr}};
}

class Pair final : public Node {
 public:
  struct Params {
    std::string match = "auto";
    void fields(Fields& f) {
      f.add("match", &match, "auto: streams that tell the time must have clocks of equal rates; seq: time is ignored")
          .one_of({"auto", "seq"});
    }
  };

  Pair(const Params& params, const NodeContext& context)
      : steps_(context.plan.evaluating ? 1 : static_cast<std::size_t>(context.plan.run.tbptt)),
        burn_in_(context.plan.evaluating ? 0 : static_cast<std::uint64_t>(context.plan.run.burn_in)),
        check_clocks_(params.match == "auto"),
        clocks_(context.node.inputs.size()),
        since_start_(context.node.inputs.size()) {
    const at::ScalarType dtype = context.services.get<SourceRules>().dtype;
    for (const int e : context.node.inputs) {
      const PlanEdge& edge = context.plan.edges[e];
      const PlanNode& from = context.plan.nodes[edge.from];
      const Signature& signature = from.signatures[edge.from_port];
      streams_.push_back(context.plan.nodes[source_above(context.plan, edge.from)].id);
      told_.push_back({from.id, {signature.x, dtype}, {signature.y, signature.integer_target ? at::kLong : dtype}});
    }
  }

  void fire(Firing& firing) override {
    const std::string* ended = nullptr;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (firing.input(i).is_end()) {
        if (ended == nullptr) ended = &streams_[i];
        continue;
      }
      Sample& sample = held_.emplace_back(firing.input(i).take<Sample>());
      check_told(sample.x, "x", told_[i].x, told_[i].id);
      check_told(sample.y, "y", told_[i].y, told_[i].id);
      Tag& tag = sample.tag;
      if (tag.seq != seq_) {
        throw Error(Exit::kInternal, fmt::format("stream \"{}\" sent sample {} where {} was due: {}", streams_[i],
                                                 tag.seq, seq_, tag.seq > seq_ ? "a gap" : "a repeat"));
      }
      if (tag.start) since_start_[i] = 0;
      if (since_start_[i]++ < burn_in_) tag.weight = 0;
    }
    if (ended != nullptr) {
      firing.emit(0, Packet::of(Batch{.rows = take_tags(), .cut = true, .cut_by = *ended}));
      return firing.end();
    }
    if (check_clocks_) compare_clocks(std::span(held_).last(streams_.size()));
    ++seq_;
    if (held_.size() < steps_ * streams_.size()) return;
    Batch batch{.x = stack(&Sample::x, "x", xs_), .y = stack(&Sample::y, "y", ys_), .known = stack_known()};
    batch.rows = take_tags();
    firing.emit(0, Packet::of(std::move(batch)));
  }

  std::uint64_t held() const override { return held_.size(); }

  nlohmann::json state() const override {
    nlohmann::json clocks = nlohmann::json::array(), held = nlohmann::json::array();
    for (const Clock& c : clocks_) {
      clocks.push_back({{"steps", c.steps}, {"last", c.last ? nlohmann::json(*c.last) : nlohmann::json()}});
    }
    for (const Sample& s : held_) held.push_back(save_sample(s));
    return {{"seq", seq_},
            {"since_start", since_start_},
            {"check_clocks", check_clocks_},
            {"clocks", clocks},
            {"held", held}};
  }
  // Of a resumed run only "seq" and "since_start" are known: clocks are compared anew then.
  void restore(const nlohmann::json& state) override {
    seq_ = state.at("seq");
    since_start_ = state.at("since_start").get<std::vector<std::uint64_t>>();
    if (!state.contains("clocks")) return;
    check_clocks_ = state.at("check_clocks");
    for (std::size_t i = 0; i < clocks_.size(); ++i) {
      const nlohmann::json& saved = state.at("clocks").at(i);
      clocks_[i].steps = saved.at("steps").get<std::vector<std::int64_t>>();
      clocks_[i].last = saved.at("last").is_null() ? std::nullopt : std::optional<std::int64_t>(saved.at("last"));
    }
    held_.clear();
    for (const nlohmann::json& saved : state.at("held")) held_.push_back(load_sample(saved));
  }

 private:
  // What a node above has told of what it will send; a plugin's may send anything.
  struct Told {
    struct Part {
      std::optional<Shape> shape;  // nullopt: any
      at::ScalarType dtype = at::kFloat;
    };
    std::string id;
    Part x, y;
  };

  static void check_told(const at::Tensor& sent, const char* name, const Told::Part& told, const std::string& id) {
    if (sent.defined() && sent.scalar_type() == told.dtype && sent.device().is_cpu() &&
        (!told.shape || sent.sizes() == at::IntArrayRef(*told.shape))) {
      return;
    }
    throw Error(Exit::kInternal,
                fmt::format("{} sends {} as {}, where it told {} of {}; `lanewise check-node` tries its type", id, name,
                            sent.defined() ? tell(sent) : "nothing", told.shape ? to_string(*told.shape) : "any shape",
                            c10::toString(told.dtype)));
  }

  struct Clock {
    std::vector<std::int64_t> steps;   // ns between samples of one run
    std::optional<std::int64_t> last;  // time of the newest sample of this run
  };

  // Those of the held samples, which are let go.
  std::vector<Tag> take_tags() {
    std::vector<Tag> tags;
    tags.reserve(held_.size());
    for (Sample& sample : held_) tags.push_back(std::move(sample.tag));
    held_.clear();
    return tags;
  }

  // [steps, n, …]: the held samples' tensors one below another.
  at::Tensor stack(at::Tensor Sample::*which, const char* name, TensorRing& ring) const {
    const at::Tensor& first = held_[0].*which;
    at::DimVector shape = {static_cast<std::int64_t>(steps_), static_cast<std::int64_t>(streams_.size())};
    shape.append(first.sizes().begin(), first.sizes().end());
    at::Tensor all = ring.next(shape, first.scalar_type());
    auto* to = static_cast<char*>(all.mutable_data_ptr());
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const at::Tensor& one = held_[i].*which;
      if (one.sizes() != first.sizes() || one.scalar_type() != first.scalar_type()) {
        throw Error(Exit::kData,
                    fmt::format("{} of stream \"{}\" is {} and that of stream \"{}\" {}; rows of a batch must be alike",
                                name, streams_[0], tell(first), streams_[i % streams_.size()], tell(one)));
      }
      to = copy_elements(one, to);
    }
    return all;
  }

  at::Tensor stack_known() {
    if (std::ranges::none_of(held_, [](const Sample& s) { return s.known.defined(); })) return {};
    for (Sample& s : held_) {
      if (!s.known.defined()) s.known = at::full_like(s.y, std::numeric_limits<double>::quiet_NaN());
    }
    return stack(&Sample::known, "known", known_);
  }

  static std::string tell(const at::Tensor& t) {
    return fmt::format("{} of {}", to_string(shape_of(t)), c10::toString(t.scalar_type()));
  }

  // Gathers steps of time; once all streams that tell the time have enough of them, compares and is done.
  void compare_clocks(std::span<const Sample> rows) {
    bool enough = true;
    std::size_t timed = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Tag& tag = rows[i].tag;
      if (tag.filler || !tag.time) continue;
      ++timed;
      Clock& clock = clocks_[i];
      std::int64_t step = 0;
      const bool told = clock.last && !tag.start && !__builtin_sub_overflow(*tag.time, *clock.last, &step);
      if (told) clock.steps.push_back(step);
      clock.last = tag.time;
      enough = enough && clock.steps.size() >= kClockSteps;
    }
    if (timed < 2) check_clocks_ = false;
    if (!enough || timed < 2) return;
    check_clocks_ = false;
    std::size_t fast = 0, slow = 0;
    std::vector<double> median(rows.size(), 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<std::int64_t>& steps = clocks_[i].steps;
      if (steps.empty()) continue;
      std::ranges::nth_element(steps, steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2));
      median[i] = static_cast<double>(steps[steps.size() / 2]);
      if (median[i] <= 0) continue;
      if (median[fast] <= 0 || median[i] < median[fast]) fast = i;
      if (median[slow] <= 0 || median[i] > median[slow]) slow = i;
    }
    if (median[fast] > 0 && median[slow] > kClockRatio * median[fast]) {
      throw Error(
          Exit::kData,
          fmt::format(
              "a sample of stream \"{}\" is {} s after the one before, of stream \"{}\" {} s: their clocks run at "
              "different rates; \"match\": \"seq\" pairs them all the same",
              streams_[fast], median[fast] / 1e9, streams_[slow], median[slow] / 1e9));
    }
  }

  const std::size_t steps_;      // samples of each stream in a batch
  const std::uint64_t burn_in_;  // samples after a stream's start that weigh 0
  std::uint64_t seq_ = 0;        // of the samples that are due
  std::vector<Sample> held_;     // of the batch that fills, time-major
  TensorRing xs_, ys_, known_;
  bool check_clocks_;
  std::vector<Clock> clocks_;               // by input
  std::vector<std::uint64_t> since_start_;  // samples since the stream's sequence began, by input
  std::vector<std::string> streams_;        // ids of the sources, by input
  std::vector<Told> told_;                  // by input
};

// Problems name the node that feeds each input, since that is what a user would change.
void infer(InferContext& context) {
  const auto feeding = [&context](std::size_t i) -> const std::string& {
    return context.plan.nodes[context.plan.edges[context.node.inputs[i]].from].id;
  };
  Signature all = context.inputs.empty() ? Signature{} : context.inputs[0];
  for (std::size_t i = 1; i < context.inputs.size(); ++i) {
    const Signature& one = context.inputs[i];
    const bool other_x = all.x && one.x && *all.x != *one.x, other_y = all.y && one.y && *all.y != *one.y;
    if (other_x || other_y || all.integer_target != one.integer_target) {
      context.problem(fmt::format("{} sends {}, {} sends {}: rows of a batch must be alike", feeding(0),
                                  context.inputs[0].text(), feeding(i), one.text()));
      break;
    }
    if (!all.x) all.x = one.x;
    if (!all.y) all.y = one.y;
    all.append(one);
  }
  context.node.signatures = {all};
}

}  // namespace

NodeType pair() {
  return node_type<Pair>("pair", "one batch of one sample from each of n streams, matched by seq", Role::kJoin,
                         {{"samples", "sample", /*many=*/true}}, {{"batch", "batch"}}, infer);
}

}  // namespace lanewise
