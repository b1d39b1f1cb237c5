// lanewise new-node: writes a plugin to begin with, a folder that builds and passes its own test as it is.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "graph/text.h"
#include "nodes/builtin.h"
#include "runtime/output_file.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLists = R"(# Builds the plugin @name@, and tests it.
#
#   cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX      # where lanewise is installed
#   cmake --build build && ctest --test-dir build
cmake_minimum_required(VERSION 3.25)
project(@name@ LANGUAGES CXX)

find_package(lanewise REQUIRED)
lanewise_add_plugin(@name@ @name@.cc)  # lib@name@.so, and @name@.json, by which `lanewise check` knows it

enable_testing()
add_test(NAME rules COMMAND ${lanewise_COMMAND} check-node @name@ --plugin $<TARGET_FILE:@name@>)
set(pipeline ${CMAKE_CURRENT_SOURCE_DIR}/pipeline.json --plugin $<TARGET_FILE:@name@>)
add_test(NAME check COMMAND ${lanewise_COMMAND} check ${pipeline})
add_test(NAME run COMMAND sh -c "rm -rf run && exec \"$0\" \"$@\"" ${lanewise_COMMAND} run ${pipeline} --quiet --out run)
)";

constexpr const char* kSource = R"(// @name@: a source. What it gives, as a formula:
//
//   x[t] = share · x[t-1] + normal        y[t] = x[t]
//
//   { "id": "gen", "repeat": 4, "type": "@name@", "params": { "share": 0.9 } }
#include "nodes/node_type.h"
#include "nodes/plugin.h"
#include "nodes/source.h"

namespace {

using namespace lanewise;

class @class@Source final : public Source {
 public:
  struct Params : GeneratorParams {
    double share = 0.9;
    void fields(Fields& f) {
      f.add("share", share, "of a sample that is carried into the next").between(-1, 1);
      GeneratorParams::fields(f);
    }
  };

  @class@Source(const Params& params, const NodeContext& context) : Source(params, context), share_(params.share) {}

 private:
  // Random numbers come from random() alone: they go by the run's seed, the node and the sample.
  Given next(Sample& sample) override {
    x_ = share_ * x_ + random().normal();
    sample.x = make_x({&x_, 1}, {1});
    sample.y = make_y({&x_, 1}, {1});
    return Given::kSample;
  }
  void rewind() override { x_ = 0; }
  // All that next() goes by, besides parameters.
  nlohmann::json save() const override { return x_; }
  void load(const nlohmann::json& saved) override { x_ = saved; }

  const double share_;
  double x_ = 0;  // the last sample's
};

// What is known before a run.
void infer(InferContext& context) {
  Signature signature{.x = Shape{1}, .y = Shape{1}, .streams = {context.node.id}};
  context.params<@class@Source::Params>().describe(signature);
  context.node.signatures = {signature};
}

}  // namespace

LANEWISE_PLUGIN(table) {
  table.add(node_type<@class@Source>("@name@", "what it gives, in a few words", Role::kSource, {},
                                   {{"sample", "sample"}}, infer));
}
)";

constexpr const char* kPerSample = R"(// @name@: a node that makes one sample of each that comes. As a formula:
//
//   x'[t] = factor · x[t]
//
//   { "id": "mine", "repeat": 4, "type": "@name@", "in": [ { "from": "gen", "take": 1 } ], "params": { "factor": 2 } }
#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "nodes/plugin.h"

namespace {

using namespace lanewise;

class @class@Node final : public PerSample {
 public:
  struct Params {
    double factor = 1;
    void fields(Fields& f) { f.add("factor", factor, "what x is multiplied by"); }
  };

  @class@Node(const Params& params, const NodeContext& context) : PerSample(context), factor_(params.factor) {}

 private:
  // Or nothing, while it gathers samples. Tensors of `sample` may be shared: make new ones, never write into them.
  std::optional<Sample> apply(Sample sample) override {
    sample.x = sample.x.mul(factor_);
    return sample;
  }
  // What apply() keeps from sample to sample goes into save() and comes back by load(); this one keeps nothing.

  const double factor_;
};

}  // namespace

// Without an infer(), what leaves has the shapes of what comes.
LANEWISE_PLUGIN(table) {
  table.add(node_type<@class@Node>("@name@", "what it makes of a sample, in a few words", Role::kPerSample,
                                 {{"sample", "sample"}}, {{"sample", "sample"}}));
}
)";

constexpr const char* kModel = R"(// @name@: a model. As a formula:
//
//   prediction = W tanh(x) + b
#include <ATen/ops/linear.h>

#include <cmath>

#include "nodes/plugin.h"
#include "runtime/model.h"

namespace {

using namespace lanewise;

class @class@Model final : public Model {
 public:
  struct Params {
    ModelSize size;
    void fields(Fields& f) { size.fields(f); }
  };

  // `input` is the shape of a sample's x, `output` that of the prediction for it.
  @class@Model(const Params& params, const Shape& input, const Shape& output) : output_(output) {
    const std::int64_t in = element_count(input), out = element_count(output);
    params.size.check("@name@", in, out);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    parameters_ = {{"weight", {out, in}, bound}, {"bias", {out}, bound}};
  }

  // x [k, n, …sample] -> [k, n, …output]; each row by itself.
  at::Tensor forward(const at::Tensor& x, at::Tensor&, const Pass&) const override {
    const at::Tensor rows = x.reshape({x.size(0) * x.size(1), -1}).tanh();
    return at::linear(rows, leaves_[0], leaves_[1]).view(prediction_shape(x, output_));
  }

 private:
  const Shape output_;
};

}  // namespace

LANEWISE_PLUGIN(table) { table.add(make_model_type<@class@Model>("@name@", "what it computes, in a few words")); }
)";

constexpr const char* kLoss = R"(// @name@: a loss. As a formula:
//
//   r = mean of |prediction - target|
#include <functional>

#include "nodes/plugin.h"
#include "runtime/loss.h"

LANEWISE_PLUGIN(table) {
  lanewise::LossType type;
  type.name = "@name@";
  type.help = "what it measures, in a few words";
  type.output_shape = std::bind_front(lanewise::shape_of_numbers, "@name@");
  // [k, n, …] and [k, n, …] -> one value a row, [k, n]; each row by itself.
  type.rows = [](const at::Tensor& prediction, const at::Tensor& target, double) {
    return prediction.sub(target).abs().flatten(2).mean(2);
  };
  table.add(type);
}
)";

constexpr const char* kPipeline =
    R"(// Trains with @name@. Run it with --plugin build/lib@name@.so, or with "plugins": ["build/lib@name@.so"] here.
{ "name": "@name@",
  "models": { "net": { "type": "@model@" } },
  "nodes": [
    { "id": "gen",    "repeat": 4, "type": "@source@" },
    { "id": "mine",   "repeat": 4, "type": "@per_sample@", "in": [ { "from": "gen", "take": 1 } ] },
    { "id": "pair",   "repeat": 2, "type": "pair", "in": [ { "from": "mine", "take": 2 } ] },
    { "id": "lane",   "repeat": 2, "type": "compute", "in": [ { "from": "pair", "take": 1 }, { "from": "opt", "initial": 1 } ],
      "device": "cpu:*", "params": { "model": "net", "loss": "@loss@" } },
    { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
    { "id": "opt",    "type": "optimizer", "in": [ { "from": "reduce" } ], "params": { "name": "adamw", "lr": 0.01 } } ],
  "run": { "steps": 100, "seed": 7 } }
)";

// A kind of plugin: its source, and the word of the pipeline that its name stands for.
struct Kind {
  const char *name, *source, *place;
};
constexpr Kind kKinds[] = {{"per-sample", kPerSample, "@per_sample@"},
                           {"source", kSource, "@source@"},
                           {"model", kModel, "@model@"},
                           {"loss", kLoss, "@loss@"}};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// "moving_mean" -> "MovingMean".
std::string class_name(const std::string& name) {
  std::string text;
  bool up = true;
  for (const char c : name) {
    if (c != '_') text += up ? static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c) : c;
    up = c == '_';
  }
  return text;
}

// Throws where the name is fit for no type, file and CMake target.
void check_name(const std::string& name) {
  constexpr std::size_t kLongest = 64;
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool word = !name.empty() && name.size() <= kLongest && letter(name.front()) &&
                    std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
  if (!word) {
    throw Error(Exit::kCommandLine,
                fmt::format("{} is no name for a type; it begins with a letter and has small letters, "
                            "digits and _, at most {}, as in moving_mean",
                            in_quotes(name), kLongest));
  }
  const Registry registry = builtin_registry();
  const auto in = [&](const auto& list) {
    return std::ranges::any_of(list, [&](const auto& type) { return type.name == name; });
  };
  if (in(registry.nodes) || in(registry.models) || in(registry.losses))
    throw Error(Exit::kCommandLine,
                fmt::format("{} is the name of a type that is built in; choose another", in_quotes(name)));
  constexpr const char* kTargets[] = {"all", "clean", "help", "install", "package", "pipeline", "test"};
  if (std::ranges::any_of(kTargets, [&](const char* target) { return name == target; }))
    throw Error(Exit::kCommandLine,
                fmt::format("{} means something else to CMake; choose another name", in_quotes(name)));
}

void write(const fs::path& path, const std::string& text) {
  OutputFile file(path.string());
  file.write(text);
  file.close();
}

}  // namespace

int new_node_command(const Arguments& arguments) {
  Options options(
      "new-node",
      "Writes the folder NAME: a plugin with one type, which builds, runs in the pipeline beside it, and passes "
      "its test as it is. Change it from there.",
      {"lanewise new-node moving_mean", "lanewise new-node my_source --kind source --json"});
  std::string kind = kKinds[0].name;
  bool json = false;
  options.new_name();
  options.text("--kind", kind, "per-sample, source, model or loss (default: per-sample)", "KIND");
  options.flag("--json", json, "prints the files' names as JSON");
  if (!options.parse(arguments)) return 0;

  const std::string name = options.file();
  check_name(name);
  std::vector<std::string> kinds;
  for (const Kind& one : kKinds) kinds.emplace_back(one.name);
  const auto chosen = std::ranges::find_if(kKinds, [&](const Kind& one) { return kind == one.name; });
  if (chosen == std::end(kKinds)) {
    throw Error(Exit::kCommandLine, fmt::format("lanewise new-node: --kind is {}, not {}{}", fmt::join(kinds, ", "),
                                                in_quotes(kind), did_you_mean(kind, kinds)));
  }
  std::error_code error;
  if (!fs::create_directory(name, error)) {
    throw Error(Exit::kCommandLine,
                fmt::format("the folder {} cannot be made ({}); choose another name, or another place", name,
                            error ? error.message() : "it is there already"));
  }
  std::string pipeline = replaced(kPipeline, chosen->place, name);
  for (const auto& [place, built_in] :
       {std::pair{"@model@", "mlp"}, {"@source@", "ar1"}, {"@loss@", "mse"}, {"@per_sample@", "window"}})
    pipeline = replaced(pipeline, place, built_in);
  const auto filled = [&](const std::string& text) {
    return replaced(replaced(text, "@name@", name), "@class@", class_name(name));
  };
  const fs::path folder(name);
  write(folder / "CMakeLists.txt", filled(kLists));
  write(folder / (name + ".cc"), filled(chosen->source));
  write(folder / "pipeline.json", filled(pipeline));
  if (json) {
    Output().write(to_text(nlohmann::ordered_json{{"folder", name},
                                                  {"files", {"CMakeLists.txt", name + ".cc", "pipeline.json"}}}) +
                   "\n");
  } else {
    Output().write(
        fmt::format("{0}/CMakeLists.txt, {0}/{0}.cc, {0}/pipeline.json\n"
                    "  cmake -S {0} -B {0}/build -DCMAKE_PREFIX_PATH=PREFIX    # where lanewise is installed\n"
                    "  cmake --build {0}/build && ctest --test-dir {0}/build\n",
                    name));
  }
  return 0;
}

}  // namespace lanewise
