// Models and losses that are TorchScript archives of the user's.
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include "graph/sha256.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "runtime/safetensors.h"
#include "runtime/setup.h"
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"

using namespace lanewise;
using nlohmann::json;
using Module = torch::jit::Module;

namespace {

// Where tests of this file put their archives.
const TemporaryFolder& folder() {
  static const TemporaryFolder all;
  return all;
}

at::Tensor values(const Shape& shape, double scale = 0.4) {
  return (at::arange(element_count(shape), at::kDouble) * 1.3 + 0.2).sin().mul(scale).reshape(shape);
}

// A module of these parameters, saved; its archive's path.
std::string saved(
    const std::string& code, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
    const std::function<void(Module&)>& more = [](Module&) {}) {
  static int count = 0;
  Module module("Net");
  for (const auto& [name, value] : parameters)
    module.register_parameter(name, value.clone().set_requires_grad(value.is_floating_point()), false);
  module.register_attribute("training", c10::BoolType::get(), true);
  more(module);
  module.define(code);
  std::string path = fmt::format("{}/{}.pt", folder().path(), ++count);
  module.save(path);
  return path;
}

const char* const kLinear = "def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n";
std::vector<std::pair<std::string, at::Tensor>> linear_parameters(std::int64_t in = 3, std::int64_t out = 1) {
  return {{"weight", values({out, in})}, {"bias", values({out})}};
}

// state' = tanh(W [x, state]), y = head(state').
std::string saved_cell(std::int64_t features, std::int64_t hidden) {
  return saved(R"(
def forward(self, x, state):
  state = torch.tanh(torch.linear(torch.cat([x, state], 1), self.weight))
  return torch.linear(state, self.head), state
)",
               {{"weight", values({hidden, features + hidden})}, {"head", values({1, hidden})}},
               [&](Module& m) { m.register_attribute("state_size", c10::IntType::get(), hidden); });
}

std::unique_ptr<Model> load(const json& params, const Shape& input = {3}, const Shape& output = {1},
                            at::ScalarType dtype = at::kDouble) {
  return model_type("torchscript").load(params, input, output, dtype)();
}

// The error of a module with this code and the parameters of linear_parameters(); its archive's path as FILE.
std::string refused(
    const std::string& code, const std::function<void(Module&)>& more = [](Module&) {}, json params = json::object()) {
  params["path"] = saved(code, linear_parameters(), more);
  std::string text = error_of([&] { load(params); });
  const std::string path = params["path"];
  for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path))
    text.replace(at, path.size(), "FILE");
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string scripted(const std::string& path, const std::string& more = "") {
  return fmt::format(R"("type": "torchscript", "path": "{}"{})", path, more);
}

Topology small(const std::string& model) {
  Topology topology{.streams = 4, .lanes = 2};
  topology.source = R"("type": "ar1", "params": { "features": 3, "samples": 60 })";
  topology.model = model;
  topology.run = R"("steps": 20, "seed": 7, "dtype": "float64")";
  return topology;
}

// The largest difference between the weights of two runs.
double apart(const Ran& a, const Ran& b) {
  double most = 0;
  REQUIRE(a.weights.size() == b.weights.size());
  for (const auto& [name, value] : a.weights) most = std::max(most, distance(value, b.weights.at(name)));
  return most;
}

// A safetensors file of these parameters.
std::string init_of(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, value] : parameters) tensors.push_back({name, value});
  const std::string path = folder().path() + "/init.safetensors";
  write_safetensors(path, tensors);
  return path;
}

}  // namespace

TEST_CASE("torchscript: a module trains as the native model of the same formula and weights, in every memory domain") {
  const std::string model = scripted(saved(kLinear, linear_parameters()));
  const std::string native =
      fmt::format(R"("type": "linear", "kernel": "library", "init": "{}")", init_of(linear_parameters()));
  const Ran expected = train(small(native).text());
  REQUIRE(expected.exit() == 0);
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{}, {"run.weights=per_device"}, {"run.threads=1"}}) {
    const Ran ran = train(small(model).text(), sets);
    CHECK_MESSAGE(ran.exit() == 0, ran.reason());
    CHECK(apart(ran, expected) < 1e-13);
    CHECK(ran.losses() == expected.losses());
  }
}

TEST_CASE("torchscript: a gradient arrives in every parameter, also of one that the module keeps in a list beside") {
  const std::vector<std::pair<std::string, at::Tensor>> parameters = {
      {"a", values({4, 3})}, {"b", values({4})}, {"c", values({1, 4})}, {"scale", values({})}};
  const std::string path = saved(
      "def forward(self, x):\n  w = self.flat\n  return torch.linear(torch.tanh(torch.linear(x, w[0], w[1])), self.c) "
      "* "
      "self.scale\n",
      parameters, [](Module& m) {
        const c10::List<at::Tensor> flat({m.attr("a").toTensor(), m.attr("b").toTensor()});
        m.register_attribute("flat", c10::ListType::ofTensors(), flat);
      });
  const auto model = load({{"path", path}});
  auto leaves = bind_some(*model);
  predict(*model, at::randn({2, 3, 3}, at::kDouble)).sum().backward();
  CHECK(leaves.size() == 4);
  for (const auto& [name, gradient] : take_gradients(leaves)) {
    CAPTURE(name);
    REQUIRE(gradient.defined());
    CHECK(gradient.abs().sum().item<double>() > 0);
  }
  // And it computes with the leaves, not with what was in the archive.
  const at::Tensor x = at::randn({1, 2, 3}, at::kDouble);
  const at::Tensor right = at::linear(at::tanh(at::linear(x, leaves["a"], leaves["b"])), leaves["c"]) * leaves["scale"];
  CHECK(at::allclose(predict(*model, x), right));
}

TEST_CASE(
    "torchscript: parameters have the archive's names and values, rounded to the run's dtype; others stay fixed") {
  const auto more = [](Module& m) {
    m.register_buffer("offset", at::tensor({1, 2, 3}, at::kLong));
    m.register_parameter("frozen", values({1}), false);
  };
  const std::string path =
      saved("def forward(self, x):\n  return torch.linear(x + self.offset, self.weight, self.bias) + self.frozen\n",
            linear_parameters(), more);
  const auto model = load({{"path", path}}, {3}, {1}, at::kFloat);
  std::string names;
  for (const ParameterSpec& spec : model->parameters()) {
    names += spec.name + " ";
    CHECK(at::equal(spec.given, (spec.name == "weight" ? values({1, 3}) : values({1})).to(at::kFloat)));
  }
  for (const BufferSpec& spec : model->buffers()) names += fmt::format("{} {} {} ", spec.name, spec.fixed, spec.after);
  CHECK(names == "weight bias frozen true 2 offset true 2 ");

  const Ran ran = train(small(scripted(path)).text());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  CHECK(at::equal(ran.weights.at("frozen"), values({1})));
  CHECK_FALSE(at::equal(ran.weights.at("bias"), values({1})));
}

TEST_CASE("torchscript: forward(x, state) is called once a time step, and the state runs on in the graph") {
  const auto model = load({{"path", saved_cell(3, 5)}});
  CHECK(model->state_size() == 5);
  auto leaves = bind_some(*model);
  const at::Tensor x = at::randn({4, 2, 3}, at::kDouble);
  at::Tensor state = at::zeros({2, 5}, at::kDouble);
  const at::Tensor whole = model->forward(x, state, {});
  at::Tensor h = at::zeros({2, 5}, at::kDouble);
  std::vector<at::Tensor> right;
  for (int t = 0; t < 4; ++t) {
    h = at::tanh(at::linear(at::cat({x[t], h}, 1), leaves["weight"]));
    right.push_back(at::linear(h, leaves["head"]));
  }
  CHECK(at::allclose(whole, at::stack(right)));
  CHECK(at::allclose(state, h));
  whole[3].sum().backward();
  const at::Tensor ours = take_gradients(leaves)["weight"];
  at::stack(right)[3].sum().backward();
  CHECK(at::allclose(ours, take_gradients(leaves)["weight"]));
}

TEST_CASE("torchscript: a run with carried state that was stopped goes on byte for byte") {
  const Registry registry = test_registry();
  const std::vector<std::string> sets = {"run.state=carry", "run.tbptt=2", "run.dtype=float32"};
  const std::string archive = saved_cell(3, 5);
  const auto of_one = [&](const std::string& steps) {
    std::vector<std::string> all = sets;
    all.push_back("run.steps=" + steps);
    return plans_of(small(scripted(archive)).text(), all, registry);
  };
  const TemporaryFolder out;
  const Ran whole = train_in(out.path() + "/whole", of_one("16"));
  REQUIRE_MESSAGE(whole.exit() == 0, whole.reason());
  REQUIRE(train_in(out.path() + "/parts", of_one("7")).exit() == 0);
  const Ran resumed = train_in(out.path() + "/parts", of_one("16"), /*resume=*/true);
  CHECK_MESSAGE(resumed.exit() == 0, resumed.reason());
  CHECK(resumed.report["weights_sha256"] == whole.report["weights_sha256"]);
  CHECK(resumed.metrics == whole.metrics);

  // Another archive, whose names and shapes are the same, is not what the run was begun with.
  write_text(archive, read_text(saved_cell(3, 5)) + "x");
  const Ran changed = train_in(out.path() + "/parts", of_one("20"), /*resume=*/true);
  CHECK(changed.exit() == 6);
  CHECK_MESSAGE(has(changed.reason(), "models.net reads " + archive + ", which was changed since the checkpoint"),
                changed.reason());
}

TEST_CASE("torchscript: a batch norm's buffers follow run.buffers, without the fillers of streams that have ended") {
  const std::vector<std::pair<std::string, at::Tensor>> parameters = {{"0.weight", values({4, 3})},
                                                                      {"0.bias", values({4})},
                                                                      {"1.weight", at::ones({4}, at::kDouble)},
                                                                      {"1.bias", at::zeros({4}, at::kDouble)},
                                                                      {"3.weight", values({1, 4})},
                                                                      {"3.bias", values({1})}};
  std::vector<std::pair<std::string, at::Tensor>> own, state = parameters;
  for (const auto& [name, value] : parameters) own.emplace_back("p" + name.substr(0, 1) + name.substr(2), value);
  state.emplace_back("1.running_mean", at::zeros({4}, at::kDouble));
  state.emplace_back("1.running_var", at::ones({4}, at::kDouble));
  const std::string path = saved(R"(
def forward(self, x):
  if self.training:
    self.batches.add_(1)
  h = torch.linear(x, self.p0weight, self.p0bias)
  h = torch.batch_norm(h, self.p1weight, self.p1bias, self.mean, self.var, self.training, 0.1, 1e-5, False)
  return torch.linear(torch.tanh(h), self.p3weight, self.p3bias)
)",
                                 own, [](Module& m) {
                                   m.register_buffer("mean", at::zeros({4}, at::kDouble));
                                   m.register_buffer("var", at::ones({4}, at::kDouble));
                                   m.register_buffer("batches", at::zeros({}, at::kLong));
                                 });
  Topology ours = small(scripted(path));
  ours.source = R"("type": "ar1", "each": { "samples": [60, 15, 33, 60] }, "params": { "features": 3 })";
  ours.run = R"("steps": 28, "seed": 7, "dtype": "float64", "on_end": "mask", "tbptt": 2)";
  const Ran without = train(ours.text());
  CHECK(without.exit() == 3);
  CHECK_MESSAGE(has(without.reason(), "model \"net\" keeps statistics of batches of 4 rows, which are noise"),
                without.reason());
  Topology native = ours;
  native.model = fmt::format(R"("type": "mlp", "hidden": [4], "activation": "tanh", "norm": "batch", "init": "{}")",
                             init_of(state));
  for (const std::string rule : {"local", "average"}) {
    CAPTURE(rule);
    const Ran ran = train(ours.text(), {"run.buffers=" + rule}), right = train(native.text(), {"run.buffers=" + rule});
    REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
    REQUIRE_MESSAGE(right.exit() == 0, right.reason());
    for (const auto& [mine, theirs] : {std::pair{"p0weight", "0.weight"},
                                       {"p3bias", "3.bias"},
                                       {"p1bias", "1.bias"},
                                       {"mean", "1.running_mean"},
                                       {"var", "1.running_var"}}) {
      CAPTURE(mine);
      CHECK(distance(ran.weights.at(mine), right.weights.at(theirs)) < 1e-12);
    }
  }
}

TEST_CASE("torchscript: what a module does that training cannot have is refused before step 0, with what to do") {
  const std::string state = "; more arguments need defaults";
  CHECK(refused("def forward(self, x, y, z):\n  return torch.linear(x + y + z, self.weight, self.bias)\n") ==
        "3: FILE: its forward(x: Tensor, y: Tensor, z: Tensor) -> Tensor is none of a model: forward(x) -> y, or "
        "forward(x, state) -> (y, state), all of them tensors" +
            state);
  CHECK(has(refused("def forward(self, x: List[Tensor]):\n  return torch.linear(x[0], self.weight, self.bias)\n"),
            "its forward(x: List[Tensor]) -> Tensor is none of a model"));
  CHECK(refused("def other(self, x):\n  return torch.linear(x, self.weight, self.bias)\n") ==
        "3: FILE has no forward; write it with torch.jit.script(module).save(\"FILE\") a module that has one");
  CHECK(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias).sum(0)\n") ==
        "3: FILE: forward gives y [1] for 2 rows, and [2, 1] is needed: nothing is broadcast or reshaped");
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias).squeeze(1)\n"),
            "forward gives y [2] for 2 rows, and [2, 1] is needed"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)[0:1]\n"),
            "forward gives y [1, 1] for 2 rows"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias).float()\n"),
            "forward gives y of Float, and run.dtype makes everything Double"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias).detach()\n"),
            "no gradient goes back through what forward gives"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight)\n"),
            "no gradient arrives in \"bias\"; forward does not use it, or detaches it"));
  CHECK(has(refused("def forward(self, x):\n  y = torch.linear(x, self.weight, self.bias)\n"
                    "  self.weight.detach().mul_(0.9)\n  return y\n"),
            "forward changes its parameter \"weight\"; the optimizer does that"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x - x.mean(0), self.weight, self.bias)\n"),
            "a row's result depends on the other rows of the batch"));
  CHECK(has(refused("def forward(self, x):\n  x.mul_(2)\n  return torch.linear(x, self.weight, self.bias)\n"),
            "forward changes its input in its place"));
  CHECK(has(refused("def forward(self, x):\n  self.calls.add_(1)\n"
                    "  return torch.linear(x, self.weight, self.bias) * self.calls\n",
                    [](Module& m) { m.register_buffer("calls", at::ones({1})); }),
            "the same rows give another result when it is called again"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight.t(), self.bias)\n"),
            "FILE: its forward fails: "));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n",
                    [](Module& m) { m.register_parameter("table", at::ones({2}, at::kLong), false); }),
            "parameter \"table\" holds Long, and models here have real numbers; make it a buffer"));
  CHECK(has(refused("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias) + self.again.sum()\n",
                    [](Module& m) { m.register_parameter("again", m.attr("weight").toTensor(), false); }),
            "\"weight\" and \"again\" share their memory (tied weights)"));
  CHECK(has(refused("def forward(self, x):\n  self.calls += 1\n  return torch.linear(x, self.weight, self.bias)\n",
                    [](Module& m) { m.register_attribute("calls", c10::IntType::get(), 0); }),
            "forward changes its attribute \"calls\", which no checkpoint would hold; make it a buffer"));
  CHECK(error_of([] {
          load({{"path", saved("def forward(self, x):\n  return x[:, 0:1]\n", {})}});
        }).find("it has no parameters to train; save the module before torch.jit.freeze()") != std::string::npos);
}

TEST_CASE("torchscript: the size of the state is said by the module or by the pipeline, and what comes back has it") {
  const std::string code = "def forward(self, x, state):\n  return torch.linear(x, self.weight, self.bias), state\n";
  CHECK(has(refused(code),
            "give the module an integer attribute state_size that says S, or the model the parameter "
            "state_size"));
  CHECK(refused(code, [](Module&) {}, {{"state_size", 4}}) == "");
  const auto says_three = [](Module& m) { m.register_attribute("state_size", c10::IntType::get(), 3); };
  CHECK(has(refused(code, says_three, {{"state_size", 4}}), "state_size is 4 in the pipeline and 3 in the module"));
  CHECK(has(refused(kLinear, [](Module&) {}, {{"state_size", 4}}),
            "state_size is given, and its forward(x: Tensor) -> "
            "Tensor has no state"));
  CHECK(has(refused("def forward(self, x, state):\n  return torch.linear(x, self.weight, self.bias), state[:, 0:2]\n",
                    says_three),
            "forward gives the state [2, 2] for 2 rows, and [2, 3] is needed"));
}

TEST_CASE("torchscript: dropout is refused unless it is declared inexact, which check and the report then say") {
  const std::string code =
      "def forward(self, x):\n  return torch.linear(torch.dropout(x, 0.4, self.training), self.weight, self.bias)\n";
  CHECK(has(refused(code), "in training it draws random numbers (active dropout), which are LibTorch's own"));
  CHECK(refused("def forward(self, x):\n  return torch.linear(torch.dropout(x, 0.0, self.training), self.weight, "
                "self.bias)\n") == "");
  const std::string text = small(scripted(saved(code, linear_parameters()), R"(, "dropout": "inexact")")).text();
  const std::string said =
      "inexact: model \"net\": its module may draw random numbers in training (dropout), which a resumed run does not "
      "repeat";
  CHECK(inexact_parts(plans_of(text).train) == std::vector{said});
  const Ran ran = train(text);
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  CHECK(ran.report["inexact"] == json::array({said}));
  CHECK(std::ranges::find(ran.said, "note: " + said) != ran.said.end());
}

TEST_CASE("torchscript: a plan loads nothing; a run refuses what is no archive, damaged, or another one") {
  const std::string good = saved(kLinear, linear_parameters()), bytes = read_text(good);
  const auto file = [&](const std::string& name, const std::string& content) {
    write_text(folder().path() + "/" + name, content);
    return folder().path() + "/" + name;
  };
  const std::string garbage = file("garbage.pt", "garbage"), eager = file("eager.pt", "PK\x03\x04 data.pkl"),
                    cut = file("cut.pt", bytes.substr(0, bytes.size() - 100));
  for (const auto& [path, what] :
       {std::pair{garbage, std::string("is no TorchScript archive; write it with torch.jit.script")},
        {eager, "holds no TorchScript, or only a part of it; what torch.save"},
        {cut, "is damaged, or for another version of PyTorch; write it anew. LibTorch says: "}}) {
    CAPTURE(path);
    const std::string text = small(scripted(path)).text();
    CHECK(plans_of(text).train.nodes.size() > 4);  // nothing of it is looked at
    const Ran ran = train(text);
    CHECK(ran.exit() == 4);
    CHECK_MESSAGE(has(ran.reason(), what), ran.reason());
    CHECK_MESSAGE(has(ran.reason(), "lane0: model \"net\" (torchscript): " + path), ran.reason());
  }
  const std::string sum = sha256_hex(bytes), other = std::string(64, 'a');
  CHECK(train(small(scripted(good, fmt::format(R"(, "sha256": "{}")", sum))).text(), {"run.steps=1"}).exit() == 0);
  const Ran wrong = train(small(scripted(good, fmt::format(R"(, "sha256": "{}")", other))).text());
  CHECK(wrong.exit() == 4);
  CHECK_MESSAGE(has(wrong.reason(), fmt::format("the SHA-256 of {} is {}, and {} is asked for", good, sum, other)),
                wrong.reason());
  CHECK(has(error_of([&] { plans_of(small(scripted(good, R"(, "sha256": "12")")).text()); }),
            "a SHA-256 has 64 hexadecimal digits"));
  // A missing one is no secret.
  const std::string missing = folder().path() + "/nobody.pt";
  CHECK(has(error_of([&] { plans_of(small(scripted(missing)).text()); }), "cannot open " + missing));
  write_text(folder().path() + "/nobod.py", "");
  const std::string text = error_of([&] { plans_of(small(scripted(missing)).text()); });
  CHECK(text.starts_with("4: "));
  CHECK_MESSAGE(has(text, "make it with: python " + folder().path() + "/nobod.py"), text);
}

TEST_CASE("torchscript: a module that changes its weights only later is stopped then") {
  const std::string path = saved(R"(
def forward(self, x):
  y = torch.linear(x, self.weight, self.bias)
  if bool((x > 1).any()):
    self.weight.detach().mul_(0.9)
  return y
)",
                                 linear_parameters());
  const Ran ran = train(small(scripted(path)).text());
  CHECK(ran.exit() == 3);
  CHECK_MESSAGE(has(ran.reason(), "forward changes a parameter, or a buffer that it left alone before step 0"),
                ran.reason());
}

TEST_CASE("torchscript: lanes on GPUs compute the host's bits, and say why no round is recorded") {
  const EmulatedGpus gpus(2);
  const std::string text = small(scripted(saved(kLinear, linear_parameters()))).text();
  const Ran host = train(text),
            device = train(text, {"lane0.device=cuda:0", "lane1.device=cuda:1", "run.reduction=reference"});
  REQUIRE_MESSAGE(host.exit() == 0, host.reason());
  REQUIRE_MESSAGE(device.exit() == 0, device.reason());
  CHECK(device.report["weights_sha256"] == host.report["weights_sha256"]);
  CHECK(device.report["devices"][0]["not_recorded"] == "a scripted module may compute other things for other batches");
}

namespace {

const char* const kMse = "def forward(self, out, y):\n  return (out - y).square().mean(1)\n";

std::string lane_with(const std::string& loss) {
  return fmt::format(R"("type": "compute", "params": {{ "model": "net", "loss": "torchscript", "loss_path": "{}" }})",
                     loss);
}

// The error of a loss with this code; its archive's path as FILE.
std::string refused_loss(
    const std::string& code, const std::function<void(Module&)>& more = [](Module&) {}) {
  const std::string path = saved(code, {}, more);
  std::string text =
      error_of([&] { loss_type("torchscript").load(read_text(path), path, at::kDouble, {2}, {2}, false); });
  if (const std::size_t at = text.find(path); at != std::string::npos) text.replace(at, path.size(), "FILE");
  return text;
}

}  // namespace

TEST_CASE("torchscript: a loss trains as the native one of the same formula, in evaluations, too") {
  Topology topology = small(R"("type": "gru", "hidden": 4, "kernel": "library")");
  topology.top = R"(, "evaluate": { "every": 10, "steps": 5 })";
  const Ran native = train(topology.text());
  topology.lane = lane_with(saved(kMse, {}));
  const Ran ran = train(topology.text());
  REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
  CHECK(apart(ran, native) < 1e-13);
  CHECK(ran.report["evaluation"]["loss"].get<double>() ==
        doctest::Approx(native.report["evaluation"]["loss"].get<double>()));
  const EmulatedGpus gpus(2);
  const Ran device = train(topology.text(), {"lane0.device=cuda:0", "lane1.device=cuda:1", "run.reduction=reference"});
  REQUIRE_MESSAGE(device.exit() == 0, device.reason());
  CHECK(device.report["weights_sha256"] == ran.report["weights_sha256"]);
}

TEST_CASE("torchscript: a loss that is not one value a row, mixes rows, is trained or random is refused") {
  CHECK(refused_loss(kMse) == "");
  CHECK(refused_loss("def forward(self, out, y):\n  return (out - y).square().mean()\n") ==
        "3: FILE: forward gives [] for 2 rows, and one loss a row, [2], is needed: take the mean over a row's values, "
        "not over rows (reduction=\"none\")");
  CHECK(has(refused_loss("def forward(self, out, y):\n  return (out - y).square()\n"),
            "forward gives [2, 2] for 2 rows"));
  CHECK(has(refused_loss("def forward(self, out):\n  return out.mean(1)\n"),
            "its forward(out: Tensor) -> Tensor is none of a loss: forward(out, y) -> one loss a row"));
  CHECK(has(refused_loss("def forward(self, out, y):\n  return (out - y).detach().square().mean(1)\n"),
            "no gradient goes back from its losses to the prediction"));
  CHECK(has(refused_loss("def forward(self, out, y):\n  return (out - y.mean(0)).square().mean(1)\n"),
            "a row's loss depends on the other rows"));
  CHECK(has(refused_loss("def forward(self, out, y):\n  return torch.dropout(out - y, 0.5, True).square().mean(1)\n"),
            "its forward draws random numbers"));
  CHECK(has(refused_loss("def forward(self, out, y):\n  return (self.w * (out - y)).mean(1)\n",
                         [](Module& m) {
                           m.register_parameter("w", at::ones({2}, at::kDouble).set_requires_grad(true), false);
                         }),
            "\"w\" requires a gradient, and a loss is not trained; make it a buffer"));
  CHECK(has(refused_loss("def forward(self, out, y):\n  self.seen.add_(1)\n  return (out - y).mean(1)\n",
                         [](Module& m) { m.register_buffer("seen", at::zeros({1})); }),
            "its forward changes what it holds"));
  Topology topology = small(R"("type": "linear")");
  topology.lane = R"("type": "compute", "params": { "model": "net", "loss": "torchscript" })";
  CHECK(has(error_of([&] { plans_of(topology.text()); }),
            "the loss torchscript is code of yours; name its archive by loss_path"));
  topology.lane = lane_with(saved("def forward(self, out, y):\n  return (out - y).square()\n", {}));
  const Ran ran = train(topology.text());
  CHECK(ran.exit() == 3);
  CHECK_MESSAGE(ran.reason().starts_with("lane0: loss torchscript: "), ran.reason());
}

TEST_CASE("torchscript: a loss takes an output of another shape than the target's where the model is told outputs") {
  const auto shape = [](const Shape& target, bool integer, const std::optional<Shape>& outputs) {
    return to_string(loss_type("torchscript").output_shape(target, integer, outputs));
  };
  CHECK(shape({3}, false, {}) == "[3]");
  CHECK(shape({3}, false, Shape{6}) == "[6]");
  CHECK(shape({1}, true, Shape{4}) == "[4]");
  CHECK(has(error_of([&] { shape({1}, true, {}); }), "give the model outputs"));

  Topology topology = small(R"("type": "linear", "outputs": 2)");  // mean and logarithm of a variance
  topology.lane = lane_with(saved(R"(
def forward(self, out, y):
  mean, log_variance = out[:, 0:1], out[:, 1:2]
  return (log_variance + (y - mean).square() * torch.exp(-log_variance)).mean(1)
)",
                                  {}));
  const Ran ran = train(topology.text());
  CHECK_MESSAGE(ran.exit() == 0, ran.reason());
  CHECK(ran.losses().back() < ran.losses().front());
}
