// torchscript: a PyTorch module of the user's, from the archive that torch.jit.script(module).save() has written.
//
//   forward(x) -> y                    x [rows, …sample], y [rows, …output]; all rows of a batch in one call
//   forward(x, state) -> (y, state)    state [rows, S]: what each row's stream has left; one call a time step
//
// S is the module's integer attribute `state_size`, or the parameter of that name. Weights begin as the archive has
// them. Parameters that require no gradient stay as they are, and so do buffers that training does not change; those
// that it changes (a batch norm's) are kept as run.buffers says, by the rows of a batch without fillers.
//
// What the module does beside that is found out by trying, once, before step 0: gradients that do not arrive, rows that
// depend on each other, weights or attributes that it changes, random numbers that it draws.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/archive.h"
#include "runtime/model.h"
#include "runtime/script_module.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

constexpr std::int64_t kTrialRows = 2;

struct Params {
  Path path;
  std::string sha256;
  std::optional<std::int64_t> state_size;
  std::string dropout = "refuse";
  ModelSize size;

  void fields(Fields& f) {
    f.add("path", &path, "the archive, by torch.jit.script(module).save(); it is code, which only a run loads")
        .required();
    f.add("sha256", &sha256, "of the archive; another one is refused. Without it, any will do");
    if (const std::string problem = sha256_problem(sha256); !problem.empty()) f.problem("sha256", problem);
    f.add("state_size", &state_size,
          "values of a stream's state, of forward(x, state); without it, the module's attribute state_size")
        .between(1, kMostWidth);
    f.add("dropout", &dropout,
          "random numbers that the module draws in training: refused, or inexact: they are LibTorch's own, which no "
          "resumed run repeats")
        .one_of({"refuse", "inexact"});
    size.fields(f);
  }
};

// What all lanes' models have in common. Tensors are counted as the module has them.
struct Contents {
  std::string path;
  Shape output;
  at::ScalarType dtype = at::kFloat;
  std::int64_t state_size = 0;  // 0: forward(x)
  std::vector<ScriptModule::Named> tensors;
  std::vector<bool> changes;                  // in training
  std::vector<std::size_t> trained, buffers;  // indices of tensors
};

[[noreturn]] void refuse(const Contents& contents, const std::string& why) {
  throw Error(Exit::kPipeline, fmt::format("{}: {}", contents.path, why));
}

Shape with_rows(std::int64_t rows, const Shape& sample) {
  Shape shape = {rows};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

void require(const Contents& contents, const char* what, const at::Tensor& is, const Shape& shape) {
  if (!is.defined()) refuse(contents, fmt::format("forward gives no {}", what));
  if (shape_of(is) != shape) {
    refuse(contents, fmt::format("forward gives {} {} for {} rows, and {} is needed: nothing is broadcast or reshaped",
                                 what, to_string(shape_of(is)), shape[0], to_string(shape)));
  }
  if (is.scalar_type() != contents.dtype) {
    refuse(contents, fmt::format("forward gives {} of {}, and run.dtype makes everything {}; let the module keep to "
                                 "the dtype of its input",
                                 what, at::toString(is.scalar_type()), at::toString(contents.dtype)));
  }
}

struct Result {
  at::Tensor y, state;
};

// `state`: undefined where the module has none.
Result call(const Contents& contents, ScriptModule& module, const at::Tensor& x, const at::Tensor& state,
            bool training) {
  std::vector<at::Tensor> inputs = {x};
  if (contents.state_size > 0) inputs.push_back(state);
  const std::vector<at::Tensor> outputs = module.forward(inputs, training);
  require(contents, "y", outputs[0], with_rows(x.size(0), contents.output));
  if (contents.state_size == 0) return {outputs[0], at::Tensor()};
  require(contents, "the state", outputs[1], {x.size(0), contents.state_size});
  return {outputs[0], outputs[1]};
}

// ------------------------------------------------------------------------------------------------- what it does

// Names "a", "b" of tensors, at most five of them.
std::string names(const Contents& contents, const std::vector<std::size_t>& which) {
  std::vector<std::string> all;
  for (const std::size_t i : which) {
    if (all.size() == 5) {
      all.push_back("…");
      break;
    }
    all.push_back(fmt::format("\"{}\"", contents.tensors[i].name));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         raw_bytes(a.contiguous()) == raw_bytes(b.contiguous());
}

// A forward in training mode: what it changes, and where the gradient arrives.
void try_training(Contents& contents, ScriptModule& module, const at::Tensor& x, const std::string& dropout) {
  const c10::AutoGradMode with_gradient(true);
  std::vector<at::Tensor> leaves;
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
    const ScriptModule::Named& named = contents.tensors[i];
    at::Tensor copy = named.value.clone();
    if (named.trained) leaves.push_back(copy.requires_grad_());
    module.put(i, copy);
  }
  const auto zero_state = [&] { return at::zeros({x.size(0), contents.state_size}, x.options()); };
  const at::Tensor drawn = library_random_state();
  const std::vector<std::string> attributes = module.other_attributes();
  const Result result = call(contents, module, x, zero_state(), /*training=*/true);
  if (!at::equal(drawn, library_random_state()) && dropout == "refuse") {
    refuse(contents,
           "in training it draws random numbers (active dropout), which are LibTorch's own: no resumed run "
           "repeats them, and lanes share them. Take dropout out (p=0), or declare the model \"dropout\": "
           "\"inexact\"");
  }
  for (const std::size_t i : contents.trained) {
    if (!same_values(module.at(i).detach(), contents.tensors[i].value))
      refuse(contents, fmt::format("forward changes its parameter {}; the optimizer does that", names(contents, {i})));
  }
  const std::vector<std::string> after = module.other_attributes();
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == attributes[i]) continue;
    refuse(contents, fmt::format("forward changes its attribute \"{}\", which no checkpoint would hold; make it a "
                                 "buffer (register_buffer)",
                                 after[i].substr(0, after[i].find(": "))));
  }
  for (const std::size_t i : contents.buffers) {
    contents.changes[i] = !same_values(module.at(i).detach(), contents.tensors[i].value);
    if (!contents.changes[i]) continue;
    if (contents.tensors[i].parameter)
      refuse(contents, fmt::format("forward changes its parameter {}; make it a buffer", names(contents, {i})));
    if (module.at(i).sizes() != contents.tensors[i].value.sizes())
      refuse(contents, fmt::format("forward changes the shape of its buffer {}", names(contents, {i})));
  }

  at::Tensor sum = result.y.sum();
  if (result.state.defined()) sum = sum + result.state.sum();
  if (!result.y.requires_grad()) {
    refuse(contents,
           "no gradient goes back through what forward gives (detach(), no_grad(), item() or a conversion "
           "to an integer lies between), so that nothing would be learnt");
  }
  sum.backward();
  std::vector<std::size_t> without;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    if (!leaves[l].grad().defined()) without.push_back(contents.trained[l]);
  }
  if (!without.empty()) {
    refuse(contents, fmt::format("no gradient arrives in {}; forward does not use it, or detaches it. Take it out, or "
                                 "keep it as it is with requires_grad_(False)",
                                 names(contents, without)));
  }
}

// Row 0 by itself and beside another one, in evaluation mode.
void try_rows(const Contents& contents, ScriptModule& module, const at::Tensor& x) {
  const c10::NoGradGuard no_gradient;
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) module.put(i, contents.tensors[i].value);
  const auto run = [&](std::int64_t rows) {
    return call(contents, module, x.narrow(0, 0, rows), at::zeros({rows, contents.state_size}, x.options()),
                /*training=*/false);
  };
  const at::Tensor drawn = library_random_state();
  const at::Tensor given = x.clone();
  const Result both = run(kTrialRows), again = run(kTrialRows), one = run(1);
  if (!at::equal(drawn, library_random_state())) return;
  if (!x.equal(given)) {
    refuse(contents,
           "forward changes its input in its place, as x.mul_(2) does; others read it, too: make a new one, as "
           "x * 2 does");
  }
  if (!alike(both.y, again.y)) {
    refuse(contents,
           "the same rows give another result when it is called again: it changes a buffer of its own that its "
           "result depends on");
  }
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() && !alike(a.narrow(0, 0, 1), b);
  };
  if (apart(both.y, one.y) || apart(both.state, one.state)) {
    refuse(contents,
           "a row's result depends on the other rows of the batch, which are other streams; the first axis "
           "is the batch (batch_first=True), and no mean, norm or attention may go over it");
  }
}

// ---------------------------------------------------------------------------------------------------- the model

class Torchscript final : public Model {
 public:
  Torchscript(std::shared_ptr<const Contents> contents, std::unique_ptr<ScriptModule> module)
      : contents_(std::move(contents)), module_(std::move(module)) {
    for (std::size_t i = 0; i < contents_->tensors.size(); ++i) {
      const auto& [name, value, parameter, trained] = contents_->tensors[i];
      module_->put(i, value);  // one copy for all lanes, until they are bound
      if (trained) {
        parameters_.push_back({.name = name, .shape = shape_of(value), .given = value});
      } else {
        buffer_specs_.push_back({.name = name,
                                 .shape = shape_of(value),
                                 .after = parameters_.size(),
                                 .given = value,
                                 .fixed = !contents_->changes[i]});
      }
    }
  }

  std::int64_t state_size() const override { return contents_->state_size; }
  std::string unrecordable() const override { return "a scripted module may compute other things for other batches"; }

  at::Tensor forward(const at::Tensor& x, at::Tensor& state, const Pass& pass) const override {
    const bool moved = !module_->at(contents_->trained[0]).is_same(leaves_[0]);
    if (moved) place();
    take_buffers();
    const auto versions = [this] {  // on the host alone: on a device, steps are issued meanwhile
      std::uint64_t sum = leaves_[0].is_cpu() ? leaves_[0]._version() : 0;
      for (std::size_t b = 0; b < buffers_.size(); ++b) {
        if (buffer_specs_[b].fixed) sum += module_->at(contents_->buffers[b])._version();
      }
      return sum;
    };
    const std::uint64_t before = versions();
    at::Tensor prediction;
    if (contents_->state_size == 0) {
      prediction = run(x.flatten(0, 1), at::Tensor(), pass.rows, pass.training).y.unflatten(0, {x.size(0), x.size(1)});
    } else {
      std::vector<at::Tensor> steps;
      for (std::int64_t t = 0; t < x.size(0); ++t) {
        const auto rows = pass.rows.empty() ? pass.rows : pass.rows.subspan(t * x.size(1), x.size(1));
        Result step = run(x[t], state, rows, pass.training);
        steps.push_back(std::move(step.y));
        state = std::move(step.state);
      }
      prediction = at::stack(steps);
    }
    if (versions() != before || !module_->at(contents_->trained[0]).is_same(leaves_[0])) {
      refuse(*contents_,
             "forward changes a parameter, or a buffer that it left alone before step 0; what training "
             "changes has to change in every batch");
    }
    if (pass.training) give_buffers();
    return prediction;
  }

 private:
  // Has the module compute with the leaves and the fixed buffers, where they are.
  void place() const {
    for (std::size_t p = 0; p < leaves_.size(); ++p) module_->put(contents_->trained[p], leaves_[p]);
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      if (buffer_specs_[b].fixed) module_->put(contents_->buffers[b], buffers_[b].to(leaves_[0].device()));
    }
  }

  // Tensors of its own for each forward: the lane's are views beside those of other lanes, and a backward may still
  // need those of the forward before.
  void take_buffers() const {
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      if (buffer_specs_[b].fixed) continue;
      module_->put(contents_->buffers[b],
                   buffers_[b].to(leaves_[0].device(), buffer_specs_[b].given.scalar_type(), false, /*copy=*/true));
    }
  }
  void give_buffers() const {
    const c10::NoGradGuard no_gradient;
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      if (!buffer_specs_[b].fixed) at::Tensor(buffers_[b]).copy_(module_->at(contents_->buffers[b]));
    }
  }
  bool any_changes() const {
    return std::ranges::any_of(buffer_specs_, [](const BufferSpec& spec) { return !spec.fixed; });
  }

  // Rows of one call. Where statistics are made of them, fillers take no part, and a single row is none to make any of.
  Result run(const at::Tensor& x, const at::Tensor& state, std::span<const Tag> rows, bool training) const {
    const auto is_filler = [](const Tag& t) { return t.filler; };
    if (!training || !any_changes()) return call(*contents_, *module_, x, state, training);
    const auto real = x.size(0) - std::ranges::count_if(rows, is_filler);
    if (real < 2) return call(*contents_, *module_, x, state, /*training=*/false);
    if (real == x.size(0)) return call(*contents_, *module_, x, state, training);
    std::vector<std::int64_t> index;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].filler) index.push_back(static_cast<std::int64_t>(i));
    }
    const at::Tensor which = at::tensor(index, at::kLong).to(x.device());
    const auto pick = [&](const at::Tensor& t) { return t.defined() ? t.index_select(0, which) : t; };
    const auto spread = [&](const at::Tensor& t) {
      if (!t.defined()) return t;
      return at::zeros(with_rows(x.size(0), Shape(t.sizes().begin() + 1, t.sizes().end())), t.options())
          .index_copy(0, which, t);
    };
    const Result result = call(*contents_, *module_, pick(x), pick(state), training);
    return {spread(result.y), spread(result.state)};
  }

  const std::shared_ptr<const Contents> contents_;
  const std::unique_ptr<ScriptModule> module_;
};

std::int64_t state_size_of(const Contents& contents, const ScriptModule& module,
                           const std::optional<std::int64_t>& asked) {
  if (module.maps(1, 1)) {
    if (!asked) return 0;
    refuse(contents, fmt::format("state_size is given, and its {} has no state", module.signature()));
  }
  if (!module.maps(2, 2)) {
    refuse(contents, fmt::format("its {} is none of a model: forward(x) -> y, or forward(x, state) -> (y, state), all "
                                 "of them tensors; more arguments need defaults",
                                 module.signature()));
  }
  const std::optional<std::int64_t> own = module.integer("state_size");
  if (!own && !asked) {
    refuse(contents,
           "forward takes a state [rows, S]; give the module an integer attribute state_size that says S, or "
           "the model the parameter state_size");
  }
  if (own && asked && *own != *asked) {
    refuse(contents, fmt::format("state_size is {} in the pipeline and {} in the module; leave it out", *asked, *own));
  }
  const std::int64_t size = asked.value_or(own.value_or(0));
  if (size < 1 || size > kMostWidth)
    refuse(contents, fmt::format("its state_size is {}, and has to be 1 or more", size));
  return size;
}

void check(const nlohmann::json& values, const Shape& input, const Shape& output) {
  const auto params = read_checked<Params>(values);
  params.size.check("torchscript", element_count(input), element_count(output));
  check_archive(params.path.text);
}

std::function<std::unique_ptr<Model>()> load(const nlohmann::json& values, const Shape& input, const Shape& output,
                                             at::ScalarType dtype) {
  const auto params = read_checked<Params>(values);
  const auto bytes = std::make_shared<const std::string>(Archives().read(params.path.text, params.sha256));
  const auto contents = std::make_shared<Contents>();
  contents->path = params.path.text;
  contents->output = output;
  contents->dtype = dtype;
  ScriptModule module(*bytes, params.path.text, dtype);
  contents->state_size = state_size_of(*contents, module, params.state_size);
  contents->tensors = module.take_tensors();
  contents->changes.resize(contents->tensors.size());
  for (std::size_t i = 0; i < contents->tensors.size(); ++i)
    (contents->tensors[i].trained ? contents->trained : contents->buffers).push_back(i);
  if (contents->trained.empty()) {
    refuse(*contents,
           "it has no parameters to train; save the module before torch.jit.freeze(), with parameters that "
           "require a gradient");
  }
  const at::Tensor x = trial_values(with_rows(kTrialRows, input), dtype, contents->path);
  try_training(*contents, module, x, params.dropout);
  try_rows(*contents, module, x);
  return [bytes, contents]() -> std::unique_ptr<Model> {
    auto own = std::make_unique<ScriptModule>(*bytes, contents->path, contents->dtype);
    return std::make_unique<Torchscript>(contents, std::move(own));
  };
}

}  // namespace

ModelType torchscript_model() {
  ModelType type;
  type.name = "torchscript";
  type.help = "a PyTorch module of one's own, from a TorchScript archive";
  type.fields = [](Fields& f) { Params().fields(f); };
  type.check = check;
  type.load = load;
  type.inexact = [](const nlohmann::json& params) -> std::string {
    if (params.at("dropout") != "inexact") return "";
    return "its module may draw random numbers in training (dropout), which a resumed run does not repeat";
  };
  return type;
}

}  // namespace lanewise
