// torchscript: a loss of the user's, from the archive that torch.jit.script(module).save() has written.
//
//   forward(out, y) -> r     out [rows, …output], y [rows, …target] -> one loss a row, [rows]
//
// It is not trained: it has no parameters that require a gradient, and runs in evaluation mode. A model's output has
// the target's shape, or is [outputs] where the model is given that, as it has to be for class numbers. Like a model,
// it is tried out once before step 0.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "runtime/loss.h"
#include "runtime/script_module.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class ScriptedLoss {
 public:
  ScriptedLoss(const std::string& bytes, const std::string& path, at::ScalarType dtype)
      : dtype_(dtype), module_(bytes, path, dtype) {
    if (!module_.maps(2, 1)) {
      refuse(fmt::format("its {} is none of a loss: forward(out, y) -> one loss a row, all of them tensors",
                         module_.signature()));
    }
    tensors_ = module_.take_tensors();
    for (const ScriptModule::Named& named : tensors_) {
      if (!named.trained) continue;
      refuse(fmt::format("\"{}\" requires a gradient, and a loss is not trained; make it a buffer", named.name));
    }
  }

  // prediction [k, n, …], target [k, n, …] -> [k, n].
  at::Tensor rows(const at::Tensor& prediction, const at::Tensor& target) {
    if (prediction.device() != where_) {
      where_ = prediction.device();
      for (std::size_t i = 0; i < tensors_.size(); ++i) module_.put(i, tensors_[i].value.to(where_));
    }
    const std::int64_t k = prediction.size(0), n = prediction.size(1);
    const at::Tensor losses = module_.forward({prediction.flatten(0, 1), target.flatten(0, 1)}, false).front();
    if (!losses.defined() || shape_of(losses) != Shape{k * n}) {
      refuse(
          fmt::format("forward gives {} for {} rows, and one loss a row, {}, is needed: take the mean over a row's "
                      "values, not over rows (reduction=\"none\")",
                      losses.defined() ? to_string(shape_of(losses)) : "nothing", k * n, to_string(Shape{k * n})));
    }
    if (losses.scalar_type() != prediction.scalar_type()) {
      refuse(fmt::format("forward gives losses of {} for predictions of {}; let it keep to their dtype",
                         at::toString(losses.scalar_type()), at::toString(prediction.scalar_type())));
    }
    return losses.view({k, n});
  }

  void try_out(const Shape& output, const Shape& target, bool integer_target) {
    const c10::AutoGradMode with_gradient(true);
    const at::Tensor out = two_rows(output, "out").requires_grad_();
    at::Tensor y = two_rows(target, "y");
    if (integer_target) y = at::zeros_like(y, at::kLong);
    const std::vector<std::string> attributes = state();
    const at::Tensor drawn = library_random_state();
    const at::Tensor both = rows(out, y);
    if (!at::equal(drawn, library_random_state())) refuse("its forward draws random numbers");
    if (!both.requires_grad())
      refuse("no gradient goes back from its losses to the prediction; something detaches them");
    if (state() != attributes) refuse("its forward changes what it holds; a loss is a function of out and y alone");
    const at::Tensor one = rows(out.narrow(1, 0, 1), y.narrow(1, 0, 1));
    if (!alike(both.narrow(1, 0, 1), one)) refuse("a row's loss depends on the other rows, which are other streams");
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Exit::kPipeline, fmt::format("{}: {}", module_.path(), why));
  }

  // Two rows: [1, 2, …shape].
  at::Tensor two_rows(const Shape& shape, const char* purpose) const {
    Shape whole = {1, 2};
    whole.insert(whole.end(), shape.begin(), shape.end());
    return trial_values(whole, dtype_, purpose);
  }

  std::vector<std::string> state() const {
    std::vector<std::string> lines = module_.other_attributes();
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      lines.push_back(fmt::format("{} {}", module_.at(i)._version(), tensors_[i].value.is_same(module_.at(i))));
    return lines;
  }

  const at::ScalarType dtype_;
  ScriptModule module_;
  std::vector<ScriptModule::Named> tensors_;
  at::Device where_ = at::kCPU;
};

Shape output_shape(const Shape& target, bool integer_target, const std::optional<Shape>& outputs) {
  if (outputs) return *outputs;
  if (integer_target) {
    throw Error(Exit::kPipeline,
                "the loss torchscript needs to know how many values the model gives for a class number; "
                "give the model outputs");
  }
  if (target.empty()) throw Error(Exit::kPipeline, "the loss torchscript takes targets of rank 1 or more");
  return target;
}

}  // namespace

LossType torchscript_loss() {
  LossType type;
  type.name = "torchscript";
  type.help = "a PyTorch module of one's own, from a TorchScript archive: (out, y) -> one loss a row";
  type.fields = [](Fields&) {};
  type.output_shape = output_shape;
  type.load = [](const std::string& bytes, const std::string& path, at::ScalarType dtype, const Shape& output,
                 const Shape& target, bool integer_target) {
    const auto loss = std::make_shared<ScriptedLoss>(bytes, path, dtype);
    loss->try_out(output, target, integer_target);
    LossType loaded = torchscript_loss();
    loaded.rows = [loss](const at::Tensor& prediction, const at::Tensor& y, double) {
      return loss->rows(prediction, y);
    };
    return loaded;
  };
  return type;
}

}  // namespace lanewise
