// Types that are broken on purpose, each in one way, to be caught by `lanewise check-node`.
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>

#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "nodes/plugin.h"
#include "nodes/source.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "runtime/tensors.h"

namespace {

using namespace lanewise;

struct NoParams {
  void fields(Fields&) {}
};

// A per-sample node whose apply() is `F`.
template <class F>
class With final : public PerSample {
 public:
  using Params = NoParams;
  With(const Params&, const NodeContext& context) : PerSample(context) {}

 private:
  std::optional<Sample> apply(Sample sample) override { return body_(std::move(sample)); }
  F body_;
};

template <class N>
NodeType per_sample(const std::string& name, std::function<void(InferContext&)> infer = nullptr) {
  return node_type<N>(name, "broken", Role::kPerSample, {{"sample", "sample"}}, {{"sample", "sample"}},
                      std::move(infer));
}
template <class F>
NodeType broken(const std::string& name) {
  return per_sample<With<F>>(name);
}

struct Halves {  // sends fewer values than its signature has
  std::optional<Sample> operator()(Sample s) {
    s.x = s.x.narrow(0, 0, 1);
    return s;
  }
};

struct Quits {  // the whole process
  std::optional<Sample> operator()(Sample) { std::_Exit(0); }
};

struct Crashes {
  std::optional<Sample> operator()(Sample) { std::abort(); }
};

struct Hangs {
  std::optional<Sample> operator()(Sample) {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
};

struct Prints {  // and is sound
  std::optional<Sample> operator()(Sample s) {
    std::puts("a sample has come");
    return s;
  }
};

struct ThrowsNumber {
  std::optional<Sample> operator()(Sample) { throw 5; }
};

struct Doubles {  // whatever the run's dtype is
  std::optional<Sample> operator()(Sample s) {
    s.x = s.x.to(at::kDouble);
    return s;
  }
};

struct Writes {  // into a sample that others may have
  std::optional<Sample> operator()(Sample s) {
    s.x.mul_(2);
    return s;
  }
};

struct Reuses {  // one tensor for all that it sends
  at::Tensor own;
  std::optional<Sample> operator()(Sample s) {
    if (!own.defined()) own = s.x.clone();
    own.copy_(s.x);
    s.x = own;
    return s;
  }
};

struct Forgets {  // its sum is not in its state
  at::Tensor sum;
  std::optional<Sample> operator()(Sample s) {
    sum = sum.defined() ? sum.add(s.x) : s.x;
    s.x = sum;
    return s;
  }
};

struct Hoards {  // keeps all that has come
  std::vector<at::Tensor> all;
  std::optional<Sample> operator()(Sample s) {
    all.push_back(s.x);
    return s;
  }
};

struct Clock {  // its noise is the time
  std::optional<Sample> operator()(Sample s) {
    s.x = s.x.add(
        static_cast<double>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1) % 1000));
    return s;
  }
};

struct Shares {  // a counter of all nodes
  std::optional<Sample> operator()(Sample s) {
    static double count = 0;
    if (s.tag.seq == 0) count = 0;
    s.x = s.x.add(++count);
    return s;
  }
};

// Nodes that are no PerSample, and do by themselves what that does.
class Own : public Node {
 public:
  using Params = NoParams;
  Own(const Params&, const NodeContext&) {}
  nlohmann::json state() const override { return seq_; }
  void restore(const nlohmann::json& state) override { seq_ = state; }
  bool skip(std::uint64_t packets) override {
    skip_ = packets;
    return true;
  }
  void fire(Firing& firing) override {
    if (firing.input(0).is_end()) return end(firing);
    Sample sample = firing.input(0).take<Sample>();
    sample.tag.seq = seq_++;
    if (skip_ > 0) {
      --skip_;
      return firing.absorb();
    }
    send(firing, std::move(sample));
  }

 protected:
  virtual void end(Firing& firing) { firing.end(); }
  virtual void send(Firing& firing, Sample sample) { firing.emit(0, Packet::of(std::move(sample))); }
  std::uint64_t seq_ = 0, skip_ = 0;
};

class DropsEnd final : public Own {
  using Own::Own;
  void end(Firing& firing) override { firing.absorb(); }
};

class EndsTwice final : public Own {  // sends a sample with the end
  using Own::Own;
  void end(Firing& firing) override {
    firing.end();
    firing.emit(0, Packet::of(Sample()));
  }
};

class Repeats final : public Own {  // a seq
  using Own::Own;
  void send(Firing& firing, Sample sample) override {
    if (sample.tag.seq == 7) sample.tag.seq = 6;
    firing.emit(0, Packet::of(std::move(sample)));
  }
};

class Loses final : public Own {  // a sample, of which nobody is told
  using Own::Own;
  void send(Firing& firing, Sample sample) override {
    if (seq_ == 12) return static_cast<void>(seq_--);
    if (sample.tag.seq == 11) sample.x = sample.x.add(1);
    firing.emit(0, Packet::of(std::move(sample)));
  }
};

class NoSkip final : public Own {
  using Own::Own;
  bool skip(std::uint64_t packets) override { return packets == 0; }
};

class Throws final : public Own {
 public:
  Throws(const Params& params, const NodeContext& context) : Own(params, context) {
    throw std::runtime_error("no licence");
  }
};

struct BadDefault {
  double share = 2;
  void fields(Fields& f) { f.add("share", share, "of it").between(0, 1); }
};
struct NoHelp {
  double share = 0.5;
  void fields(Fields& f) { f.add("share", share, ""); }
};
template <class P>
class Parametrised final : public PerSample {
 public:
  using Params = P;
  Parametrised(const Params&, const NodeContext& context) : PerSample(context) {}

 private:
  std::optional<Sample> apply(Sample sample) override { return sample; }
};

class Short final : public Source {  // one sample less than it tells
 public:
  struct Params : GeneratorParams {};
  Short(const Params& params, const NodeContext& context) : Source(static_cast<const SourceParams&>(params), context) {
    samples_ = params.samples.value_or(1 << 20) - 1;
  }

 private:
  Given next(Sample& sample) override {
    if (at_ == samples_) return Given::kEnd;
    const double value = static_cast<double>(at_++);
    sample.x = make_x({&value, 1}, {1});
    sample.y = make_y({&value, 1}, {1});
    return Given::kSample;
  }
  void rewind() override { at_ = 0; }
  nlohmann::json save() const override { return at_; }
  void load(const nlohmann::json& saved) override { at_ = saved; }
  std::int64_t samples_, at_ = 0;
};

NodeType short_source() {
  return node_type<Short>("short_source", "broken", Role::kSource, {}, {{"sample", "sample"}},
                          [](InferContext& context) {
                            Signature signature{.x = Shape{1}, .y = Shape{1}, .streams = {context.node.id}};
                            context.params<Short::Params>().describe(signature);
                            context.node.signatures = {signature};
                          });
}

// W x + b, and `F` makes something wrong of it.
template <class F>
class Wrong final : public Model {
 public:
  using Params = NoParams;
  Wrong(const Params&, const Shape& input, const Shape& output) : output_(output) {
    parameters_ = {{"weight", {element_count(output), element_count(input)}, 0.5},
                   {"bias", {element_count(output)}, 0.5}};
  }
  std::int64_t state_size() const override { return F::kState; }
  at::Tensor forward(const at::Tensor& x, at::Tensor& state, const Pass&) const override {
    const at::Tensor rows = at::linear(x.reshape({x.size(0) * x.size(1), -1}), leaves_[0], leaves_[1]);
    return body_(rows.view(prediction_shape(x, output_)), leaves_, state);
  }

 private:
  const Shape output_;
  F body_;
};

using Leaves = std::vector<at::Tensor>;

struct MixesRows {
  static constexpr std::int64_t kState = 0;
  at::Tensor operator()(const at::Tensor& p, const Leaves&, at::Tensor&) const { return p.sub(p.mean(1, true)); }
};

struct Detaches {  // part of its prediction from the graph
  static constexpr std::int64_t kState = 0;
  at::Tensor operator()(const at::Tensor& p, const Leaves& leaves, at::Tensor&) const {
    return p.add(leaves[1].detach().square());
  }
};

struct Remembers {  // how often it was called
  static constexpr std::int64_t kState = 0;
  mutable double calls = 0;
  at::Tensor operator()(const at::Tensor& p, const Leaves&, at::Tensor&) const { return p.add(++calls); }
};

struct LosesState {  // after the first step of several
  static constexpr std::int64_t kState = 1;
  at::Tensor operator()(const at::Tensor& p, const Leaves&, at::Tensor& state) const {
    const at::Tensor out = p.add(state.view({1, -1, 1}));
    state = state.add(1);
    return out;
  }
};

struct WritesState {
  static constexpr std::int64_t kState = 1;
  at::Tensor operator()(const at::Tensor& p, const Leaves&, at::Tensor& state) const {
    state.zero_();
    return p;
  }
};

template <class F>
ModelType wrong(const std::string& name) {
  return make_model_type<Wrong<F>>(name, "broken");
}

LossType loss(const std::string& name, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> rows) {
  LossType type;
  type.name = name;
  type.help = "broken";
  type.output_shape = std::bind_front(shape_of_numbers, name);
  type.rows = [rows](const at::Tensor& p, const at::Tensor& t, double) { return rows(p, t); };
  return type;
}

at::Tensor squares(const at::Tensor& p, const at::Tensor& t) { return p.sub(t).square().flatten(2); }

LossType wrong_row() {
  LossType type = loss("wrong_row", [](const at::Tensor& p, const at::Tensor& t) { return squares(p, t).mean(2); });
  type.row = [](std::span<const double> p, std::span<const double> t, double, std::span<double> gradient) {
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      sum += (p[i] - t[i]) * (p[i] - t[i]);
      gradient[i] = p[i] - t[i];  // twice that over the number of elements would be right for 2 of them only
    }
    gradient[0] *= 3;
    return sum / static_cast<double>(p.size());
  };
  return type;
}

}  // namespace

LANEWISE_PLUGIN(table) {
  table.add(broken<Halves>("halves"));
  table.add(broken<Doubles>("doubles"));
  table.add(broken<Quits>("quits"));
  table.add(broken<Crashes>("crashes"));
  table.add(broken<Hangs>("hangs"));
  table.add(broken<ThrowsNumber>("throws_number"));
  table.add(broken<Prints>("prints"));
  table.add(broken<Writes>("writes"));
  table.add(broken<Reuses>("reuses"));
  table.add(broken<Forgets>("forgets"));
  table.add(broken<Hoards>("hoards"));
  table.add(broken<Clock>("clock"));
  table.add(broken<Shares>("shares"));
  table.add(per_sample<DropsEnd>("drops_end"));
  table.add(per_sample<EndsTwice>("ends_twice"));
  table.add(per_sample<Repeats>("repeats"));
  table.add(per_sample<Loses>("loses"));
  table.add(per_sample<NoSkip>("no_skip"));
  table.add(per_sample<Throws>("throws"));
  table.add(per_sample<Parametrised<BadDefault>>("bad_default"));
  table.add(per_sample<Parametrised<NoHelp>>("no_help"));
  table.add(per_sample<Own>("tells_nothing", [](InferContext& context) { context.node.signatures.assign(1, {}); }));
  table.add(short_source());
  table.add(wrong<MixesRows>("mixes_rows"));
  table.add(wrong<Detaches>("detaches"));
  table.add(wrong<Remembers>("remembers"));
  table.add(wrong<LosesState>("loses_state"));
  table.add(wrong<WritesState>("writes_state"));
  table.add(loss("summed", [](const at::Tensor& p, const at::Tensor& t) { return squares(p, t).sum(2); }));
  table.add(loss("batch_mean", [](const at::Tensor& p, const at::Tensor& t) {
    return squares(p, t).mean(2).mean().expand({p.size(0), p.size(1)});
  }));
  table.add(loss("no_gradient", [](const at::Tensor& p, const at::Tensor& t) {
    return squares(p.detach(), t).mean(2).add(p.flatten(2).mean(2));
  }));
  table.add(loss("one_value", [](const at::Tensor& p, const at::Tensor& t) { return squares(p, t).mean(); }));
  table.add(wrong_row());
}
