// process: a program of one's own that gives samples, in any language (docs/generator-protocol.md).
//
//   { "id": "gen", "repeat": 16, "type": "process", "params": { "command": ["python3", "sim.py"] } }
//
// Each stream has a process of its own, started without a shell in the folder of the pipeline file, with a seed that is
// a function of the run's seed, the node's id, the run and whether it is an evaluation. A sample with a NaN in y has
// weight 0. An evaluation keeps its processes for the next one where they can begin again.
//
// A resumed run goes on from the state that the program saved, or, where it saves none, has it make the samples of the
// run again and drops those that were used.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <mutex>
#include <set>

#include "graph/text.h"
#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "nodes/process.h"
#include "nodes/source.h"
#include "runtime/base64.h"
#include "runtime/generators/generators.h"
#include "runtime/tensor_ring.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // how often one that waits by hand looks for a signal

at::ScalarType type_of(const GeneratorField& field) {
  return field.dtype == "float32" ? at::kFloat : field.dtype == "float64" ? at::kDouble : at::kLong;
}

struct ProcessParams : GeneratorParams {
  std::vector<std::string> command;
  Path folder{"."};
  nlohmann::json environment = nlohmann::json::object();
  std::vector<std::int64_t> x, y;
  std::string target = "values", on_failure = "fail";
  std::int64_t max_restarts = 3, slots = 64, max_sample_bytes = 64 << 20, max_state_bytes = 16 << 20;
  double within = 600, start = 60;

  void fields(Fields& f) {
    f.add("command", &command, "the program and its arguments, as a list: no shell takes part").required();
    f.add("folder", &folder, "where it runs; the folder of the pipeline file is \".\"");
    f.add("environment", &environment, "variables that it gets besides, as an object of texts");
    f.add("x", &x, "shape of x; without it, or y, the first process is asked before the run").at_least(1);
    f.add("y", &y, "shape of y").at_least(1);
    f.add("target", &target, "what y holds: numbers, or class numbers (int64)").one_of({"values", "classes"});
    f.add("on_failure", &on_failure, "what its failure means: of the run; it is started again; its stream ends")
        .one_of({"fail", "restart", "end"});
    f.add("max_restarts", &max_restarts, "how often it is started again `within` that time").between(0, 1000);
    f.add("within", &within, "the time that max_restarts counts in").above(0).at_most(1e6).unit("s");
    f.add("start", &start, "how long it may take until it says hello").above(0).at_most(1e6).unit("s");
    f.add("slots", &slots, "samples that it may be ahead, fewer where they are large").between(2, 4096);
    f.add("max_sample_bytes", &max_sample_bytes, "a larger sample is refused").between(16, 1 << 30).unit("bytes");
    f.add("max_state_bytes", &max_state_bytes, "a larger state is refused").between(0, 1 << 30).unit("bytes");
    GeneratorParams::fields(f);
    if (environment.is_object()) {
      for (const auto& [name, value] : environment.items()) {
        if (name.find('\0') != std::string::npos ||
            (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos))
          f.problem("environment", fmt::format("{} holds a zero byte, which no variable can", in_quotes(name)));
        if (name.empty() || name.find('=') != std::string::npos || name.starts_with("LANEWISE_"))
          f.problem("environment", fmt::format("{} is no name for a variable of yours", in_quotes(name)));
        if (!value.is_string())
          f.problem("environment", fmt::format("{} is {}, not a text", in_quotes(name), shown(value)));
      }
    } else {
      f.problem("environment", fmt::format("environment is {}, not an object of texts", shown(environment)));
    }
  }
};

// But for what depends on the run: seed, evaluating.
GeneratorSettings settings_of(const ProcessParams& params, const std::string& stream) {
  GeneratorSettings settings;
  settings.stream = stream;
  settings.command = {.arguments = params.command, .folder = params.folder.text, .variables = {}};
  for (const auto& [name, value] : params.environment.items())
    settings.command.variables.push_back(name + "=" + value.get<std::string>());
  settings.slots = static_cast<std::size_t>(params.slots);
  settings.most_sample = static_cast<std::size_t>(params.max_sample_bytes);
  settings.most_state = static_cast<std::size_t>(params.max_state_bytes);
  settings.start_s = params.start;
  settings.on_failure = params.on_failure == "fail"      ? OnFailure::kFail
                        : params.on_failure == "restart" ? OnFailure::kRestart
                                                         : OnFailure::kEnd;
  settings.max_restarts = params.max_restarts;
  settings.within_s = params.within;
  return settings;
}

// Throws a ProtocolError where samples are not what the pipeline was planned with.
void check_planned(const GeneratorHello& hello, const Shape& x, const Shape& y, bool classes) {
  if (hello.x.shape != x || hello.y.shape != y) {
    throw ProtocolError("shape",
                        fmt::format("it gives x {} and y {}, and the pipeline is planned with x {} and y {}; "
                                    "let the parameters x and y say what it gives",
                                    to_string(hello.x.shape), to_string(hello.y.shape), to_string(x), to_string(y)));
  }
  if (classes && hello.y.dtype != "int64")
    throw ProtocolError("dtype", "y is " + hello.y.dtype + "; class numbers (target) are int64");
}

// Of a dense float32 or float64 tensor.
bool has_nan(const at::Tensor& tensor) {
  bool found = false;
  with_type(tensor, [&]<class T>(T) {
    found = std::ranges::any_of(std::span(data_of<T>(tensor), static_cast<std::size_t>(tensor.numel())),
                                [](T value) { return std::isnan(value); });
  });
  return found;
}

class Process final : public Source {
 public:
  using Params = ProcessParams;

  Process(const Params& params, const NodeContext& context)
      : Source(static_cast<const GeneratorParams&>(params), context),
        params_(params),
        generators_(context.services.get<Generators>()) {}

  ~Process() override {
    if (generator_ != nullptr && generator_->can_begin_again())
      generators_.keep(id(), rules().evaluating, std::move(generator_));
  }

  void connect(Feed* feed) override {
    if (feed == nullptr && generator_ != nullptr) generator_->connect(nullptr);
    feed_ = feed;
    if (feed == nullptr) return;
    if (over()) return feed->came();
    make_generator().connect(feed);
    begin();
  }

  void fire(Firing& firing) override {
    do {
      if (feed_ == nullptr) wait_by_hand();
      later_ = false;
      Source::fire(firing);
    } while (feed_ == nullptr && later_);
    // Nothing of the program's is needed for a filler, nor to know that the last sample was the last.
    const bool enough = params_.samples && given() == static_cast<std::uint64_t>(*params_.samples);
    if (feed_ != nullptr && !firing.ended() && (over() || enough)) feed_->came();
  }

 private:
  Given next(Sample& sample) override {
    GeneratorFrame frame;
    switch (generator_->next(frame, [this](const GeneratorHello& hello) {
      // What a frame that was dropped has left is taken again.
      if (!x_.defined()) x_ = x_frames_.next(hello.x.shape, type_of(hello.x));
      if (!y_.defined()) y_ = y_frames_.next(hello.y.shape, type_of(hello.y));
      return FrameMemory{static_cast<std::byte*>(x_.data_ptr()), static_cast<std::byte*>(y_.data_ptr())};
    })) {
      case Generator::Next::kEnd:
        return Given::kEnd;
      case Generator::Next::kNewRun:
        begin_run();
        [[fallthrough]];
      case Generator::Next::kLater:
        later_ = true;
        return Given::kLater;
      case Generator::Next::kFrame:
        break;
    }
    sample.x = std::exchange(x_, {}).to(dtype());
    sample.y = std::exchange(y_, {}).to(params_.target == "classes" ? at::kLong : dtype());
    sample.tag.start = frame.start;
    sample.tag.time = frame.time;
    sample.tag.weight *= frame.weight;
    if (at::isFloatingType(sample.y.scalar_type()) && has_nan(sample.y)) sample.tag.weight = 0;
    return Given::kSample;
  }

  void rewind() override { generator_->begin(run()); }

  nlohmann::json save() const override {
    const auto state = generator_ != nullptr ? generator_->state(run(), given()) : std::nullopt;
    if (!state) return {{"state", nullptr}};
    return {{"state", {{"at", state->sequence}, {"bytes", to_base64(state->bytes)}}}};
  }
  void load(const nlohmann::json& saved) override {
    if (saved.at("state").is_null()) return;
    state_ = {.run = run(),
              .sequence = saved.at("state").at("at"),
              .bytes = from_base64(saved.at("state").at("bytes").get<std::string>())};
  }

  Generator& make_generator() {
    if (generator_ == nullptr) generator_ = generators_.take(id(), rules().evaluating);
    if (generator_ == nullptr) generator_ = std::make_unique<Generator>(generators_, settings());
    generator_->save_every(rules().record_every);
    return *generator_;
  }

  GeneratorSettings settings() const {
    GeneratorSettings settings = settings_of(params_, id());
    settings.evaluating = rules().evaluating;
    settings.seed = [random = random_stream()](std::uint64_t run) { return random.at(run).bits(); };
    settings.check = [x = params_.x, y = params_.y, classes = params_.target == "classes"](
                         const GeneratorHello& hello) { check_planned(hello, x, y, classes); };
    return settings;
  }

  void begin() { generator_->begin(run(), given(), std::exchange(state_, {})); }

  // Outside of a flow, as while fitting.
  void wait_by_hand() {
    if (generator_ == nullptr) {
      make_generator();
      begin();
    }
    if (generators_.options().stop_wanted())
      throw Error(Exit::kStopped, fmt::format("stopped on request, while {} was waited for", id()));
    generator_->wait(kLook);
  }

  const Params params_;
  Generators& generators_;
  std::unique_ptr<Generator> generator_;
  Feed* feed_ = nullptr;
  std::optional<GeneratorState> state_;  // to begin from
  TensorRing x_frames_, y_frames_;
  at::Tensor x_, y_;    // for the next frame
  bool later_ = false;  // next() had nothing yet
};

// What the program says of itself.
GeneratorHello hello_of(const PlanNode& node, const std::function<bool()>& stop_wanted) {
  Generators generators({});
  GeneratorSettings settings = settings_of(read_checked<ProcessParams>(node.params), node.id);
  settings.seed = [](std::uint64_t) { return 0; };
  std::mutex mutex;
  std::optional<GeneratorHello> hello;
  settings.check = [&](const GeneratorHello& said) {
    const std::lock_guard lock(mutex);
    hello = said;
  };
  settings.on_failure = OnFailure::kFail;
  Generator generator(generators, settings);
  generator.begin(0);
  while (true) {
    if (stop_wanted()) throw Error(Exit::kStopped, fmt::format("stopped on request, while {} was asked", node.id));
    generator.wait(kLook);
    {
      const std::lock_guard lock(mutex);
      if (hello) return *hello;
    }
    try {  // for its error; a frame is of no interest
      GeneratorFrame frame;
      std::vector<std::byte> x, y;
      generator.next(frame, [&](const GeneratorHello& said) {
        x.resize(said.x.bytes);
        y.resize(said.y.bytes);
        return FrameMemory{x.data(), y.data()};
      });
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("{} (process): {}", node.id, error.what()));
    }
  }
}

void infer(InferContext& context) {
  const auto params = context.params<Process::Params>();
  if (params.command.empty() || params.command.front().empty())
    context.problem("the command is a list of the program and its arguments, such as [\"python3\", \"sim.py\"]",
                    "command");
  Signature signature{.integer_target = params.target == "classes", .streams = {context.node.id}};
  if (!params.x.empty() && !params.y.empty()) {
    signature.x = params.x;
    signature.y = params.y;
  }
  params.describe(signature);
  if (!params.samples) signature.endless = false;  // it may end by itself
  context.node.signatures = {signature};
}

}  // namespace

std::vector<Override> ask_for_shapes(const Plan& plan, const std::function<bool()>& stop_wanted) {
  std::vector<Override> sets;
  std::set<std::string> asked;
  for (const PlanNode& node : plan.nodes) {
    if (node.type->name != "process" || !asked.insert(node.base).second) continue;
    const auto params = read_checked<ProcessParams>(node.params);
    if (!params.x.empty() && !params.y.empty()) continue;
    const GeneratorHello hello = hello_of(node, stop_wanted);
    const auto set = [&](const std::string& key, const std::string& value) {
      sets.push_back({Override::Kind::kSet, fmt::format("{}.{}={}", node.base, key, value), ""});
    };
    if (params.x.empty()) set("x", nlohmann::json(hello.x.shape).dump());
    if (params.y.empty()) set("y", nlohmann::json(hello.y.shape).dump());
  }
  return sets;
}

NodeType process() {
  NodeType type = node_type<Process>("process", "a program of one's own that gives samples", Role::kSource, {},
                                     {{"sample", "sample"}}, infer);
  type.fed = true;
  return type;
}

}  // namespace lanewise
