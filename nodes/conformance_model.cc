// The rules of models and losses, in float64.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "nodes/conformance_rules.h"
#include "runtime/kernel.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "runtime/replica.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

constexpr std::int64_t kSteps = 3, kRows = 4, kSlopes = 12;  // slopes that are measured, a tensor

// Elements of a tensor, spread over it.
std::vector<std::int64_t> some_elements(std::int64_t count) {
  std::vector<std::int64_t> elements;
  for (std::int64_t k = 0; k < std::min(count, kSlopes); ++k) elements.push_back(k * count / std::min(count, kSlopes));
  return elements;
}

Shape behind(std::int64_t k, std::int64_t n, const Shape& shape) {
  Shape whole = {k, n};
  whole.insert(whole.end(), shape.begin(), shape.end());
  return whole;
}

class ModelCheck {
 public:
  ModelCheck(const ModelType& type, const nlohmann::json& params, const RuleBegins& begins)
      : type_(type), params_(params), rules_(begins) {}

  Conformance check() {
    if (!check_parameters(rules_, type_.name, type_.help, type_.fields, params_)) return rules_.result;
    if (type_.load) {
      rules_.result.untried = kTriedByRuns;
      return rules_.result;
    }
    if (!rules_.rule("can be made for some samples", [&] { return can_be_made(); })) return rules_.result;
    rules_.rule("names each parameter and buffer once", [&] { return names(); });
    rules_.rule("gives predictions of the shape that it was made for, in the weights' dtype", [&] { return shapes(); });
    rules_.rule("gives the same for the same samples, whatever came between", [&] { return is_determined(); });
    rules_.rule("changes nothing of its input", [&] { return leaves_alone(); });
    rules_.rule("treats each row by itself", [&] { return rows_are_apart(); });
    rules_.rule("computes in one call of several steps what several calls of one do", [&] { return steps_follow(); });
    rules_.rule("has the gradients that finite differences give", [&] { return gradients(); });
    rules_.rule("computes without autograd what it computes with it", [&] { return kernel(); });
    time();
    return rules_.result;
  }

 private:
  // A model over weights of its own.
  struct Made {
    Shape input;
    std::unique_ptr<Replicas> replicas;
    Model& model() const { return replicas->model(0); }
    at::Tensor samples(std::int64_t k, std::int64_t n, double start = 0) const {
      return some_numbers(behind(k, n, input), start);
    }
    at::Tensor state(std::int64_t n) const { return some_numbers({n, model().state_size()}, 5).mul(0.5); }
  };

  Made make(const Shape& input) const {
    const nlohmann::json params = all_params(type_.name, type_.fields, params_);
    return {input, std::make_unique<Replicas>([&] { return type_.make(params, input, output_); }, "net",
                                              ReplicaOptions{.dtype = at::kDouble, .seed = 7})};
  }

  std::string can_be_made() {
    std::string why;
    for (const Shape& input : {Shape{3}, Shape{4, 3}, Shape{2, 6, 6}}) {
      try {
        made_.push_back(make(input));
      } catch (const Error& error) {
        why += fmt::format("{}for x {}: {}", why.empty() ? "" : "; ", to_string(input), error.what());
      }
    }
    return made_.empty() ? why : "";
  }

  // Tries each of the models; "" or what the first that is wrong does.
  std::string each(const std::function<std::string(Made&)>& try_it) {
    for (Made& made : made_) {
      if (const std::string why = try_it(made); !why.empty())
        return fmt::format("for samples x {}, {}", to_string(made.input), why);
    }
    return "";
  }

  static at::Tensor forward(const Made& made, const at::Tensor& x, at::Tensor& state) {
    return made.model().forward(x, state, {});
  }
  static at::Tensor forward(const Made& made, const at::Tensor& x) {
    at::Tensor state = made.state(x.size(1));
    return forward(made, x, state);
  }

  std::string names() {
    return each([](Made& made) -> std::string {
      std::set<std::string> names;
      const auto add = [&](const auto& specs) {
        for (const auto& spec : specs) {
          if (spec.name.empty() || !names.insert(spec.name).second) return spec.name;
        }
        return std::string("-");
      };
      for (const std::string& bad : {add(made.model().parameters()), add(made.model().buffers())}) {
        if (bad != "-") return fmt::format("the name \"{}\" is empty or there twice", bad);
      }
      return made.model().parameters().empty() ? "it has no parameter to train" : "";
    });
  }

  std::string shapes() {
    return each([&](Made& made) -> std::string {
      const at::Tensor prediction = forward(made, made.samples(kSteps, kRows));
      const Shape due = behind(kSteps, kRows, output_);
      if (shape_of(prediction) != due)
        return fmt::format("a prediction is {} instead of {}", to_string(shape_of(prediction)), to_string(due));
      if (prediction.scalar_type() != at::kDouble)
        return fmt::format("a prediction is {} with weights of Double", c10::toString(prediction.scalar_type()));
      at::Tensor state = made.state(kRows);
      forward(made, made.samples(kSteps, kRows), state);
      const Shape rows = {kRows, made.model().state_size()};
      return shape_of(state) == rows ? "" : fmt::format("it leaves a state of {}", to_string(shape_of(state)));
    });
  }

  std::string is_determined() {
    return each([&](Made& made) {
      const at::Tensor x = made.samples(kSteps, kRows), first = forward(made, x);
      forward(made, made.samples(1, 2, 3));
      const std::string why = difference(first, forward(made, x), "called again, it predicts");
      return why.empty() ? difference(first, forward(make(made.input), x), "made again, it predicts") : why;
    });
  }

  std::string leaves_alone() {
    return each([&](Made& made) -> std::string {
      const at::Tensor x = made.samples(kSteps, kRows), x_before = x.clone();
      const at::Tensor state = made.state(kRows), state_before = state.clone();
      at::Tensor moved = state;
      forward(made, x, moved);
      if (!x.equal(x_before)) return "x has changed";
      return state.equal(state_before) ? "" : "the state that it was handed has changed in its place";
    });
  }

  std::string rows_are_apart() {
    return each([&](Made& made) -> std::string {
      const at::Tensor x = made.samples(kSteps, kRows), state = made.state(kRows);
      at::Tensor together_state = state;
      const at::Tensor together = forward(made, x, together_state);
      for (std::int64_t i = 0; i < kRows; ++i) {
        at::Tensor own = state.narrow(0, i, 1).clone();
        const at::Tensor alone = forward(made, x.narrow(1, i, 1).contiguous(), own);
        std::string why = difference(alone, together.narrow(1, i, 1), fmt::format("row {} among {} rows", i, kRows));
        if (why.empty()) why = difference(own, together_state.narrow(0, i, 1), fmt::format("the state of row {}", i));
        if (!why.empty()) return why + ", as it is alone";
      }
      return "";
    });
  }

  std::string steps_follow() {
    return each([&](Made& made) -> std::string {
      const at::Tensor x = made.samples(kSteps, kRows);
      at::Tensor at_once = made.state(kRows), state = made.state(kRows);
      const at::Tensor whole = forward(made, x, at_once);
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const at::Tensor one = forward(made, x.narrow(0, t, 1).contiguous(), state);
        const std::string why = difference(one, whole.narrow(0, t, 1), fmt::format("step {} of {} at once", t, kSteps));
        if (!why.empty()) return why + ", as it is step by step";
      }
      return difference(state, at_once, "the state after all steps");
    });
  }

  // Σ c · prediction, so that each element counts differently.
  static at::Tensor weighed(const at::Tensor& prediction) {
    return prediction.mul(some_numbers(shape_of(prediction), 9)).sum();
  }

  std::string gradients() {
    return each([&](Made& made) -> std::string {
      const at::Tensor x = made.samples(kSteps, kRows);
      made.replicas->bucket(0).zero_();
      weighed(forward(made, x)).backward();
      const auto value = [&] { return weighed(forward(made, x)).item<double>(); };
      const std::span<const at::Tensor> leaves = made.replicas->leaves(0);
      for (std::size_t p = 0; p < leaves.size(); ++p) {
        const std::vector<double> slopes = tensor_values(leaves[p].grad());
        const at::Tensor flat = leaves[p].detach().view(-1);
        for (const std::int64_t i : some_elements(flat.numel())) {
          const std::string& name = made.model().parameters()[p].name;
          const std::string why = wrong_slope(flat, i, slopes[static_cast<std::size_t>(i)], value, name);
          if (!why.empty()) return why;
        }
      }
      return "";
    });
  }

  std::string kernel() {
    return each([&](Made& made) -> std::string {
      Kernel* const kernel = made.model().kernel(kRows);
      if (kernel == nullptr) return "";
      const at::Tensor x = made.samples(1, kRows);
      at::Tensor& bucket = made.replicas->bucket(0);
      bucket.zero_();
      const at::Tensor prediction = forward(made, x);
      weighed(prediction).backward();
      const at::Tensor gradient = bucket.clone();
      bucket.zero_();
      const std::string why = difference(prediction, kernel->forward(x, {}), "the kernel predicts");
      if (!why.empty()) return why;
      kernel->backward(tensor_values(some_numbers(shape_of(prediction), 9)));
      return difference(gradient, bucket, "the kernel's gradient");
    });
  }

  void time() {
    const Made& made = made_.front();
    const at::Tensor x = made.samples(1, 2);
    try {
      rules_.time("a forward and backward of 2 rows", [&] {
        made.replicas->bucket(0).zero_();
        weighed(forward(made, x)).backward();
      });
    } catch (...) {
      rules_.result.cost = "";  // what is wrong was told
    }
  }

  const ModelType& type_;
  const nlohmann::json params_;
  const Shape output_{2};
  std::vector<Made> made_;
  Rules rules_;
};

class LossCheck {
 public:
  LossCheck(const LossType& type, const RuleBegins& begins) : type_(type), rules_(begins) {}

  Conformance check() {
    check_parameters(rules_, type_.name, type_.help, type_.fields, nlohmann::json::object());
    if (type_.load) {
      rules_.result.untried = kTriedByRuns;
      return rules_.result;
    }
    if (!rules_.rule("takes targets that are numbers, or classes", [&] { return takes_targets(); }))
      return rules_.result;
    rules_.rule("gives one value a row", [&] { return gives_rows(); });
    rules_.rule("gives the same for the same rows, and changes nothing of them", [&] { return is_determined(); });
    rules_.rule("treats each row by itself", [&] { return rows_are_apart(); });
    rules_.rule("is a mean over a row's elements, not a sum", [&] { return is_mean(); });
    rules_.rule("has the gradient that finite differences give", [&] { return gradient(); });
    rules_.rule("computes without autograd what it computes with it", [&] { return row(); });
    time();
    return rules_.result;
  }

 private:
  static constexpr std::int64_t kK = 2, kN = 3;
  static constexpr double kDelta = 0.75;

  std::string takes_targets() {
    std::string why;
    try {
      target_ = {2};
      output_ = type_.output_shape(target_, /*integer_target=*/false, std::nullopt);
      return "";
    } catch (const Error& error) {
      why = fmt::format("numbers: {}", error.what());
    }
    try {
      target_ = {1};
      classes_ = true;
      output_ = type_.output_shape(target_, /*integer_target=*/true, Shape{3});
      return "";
    } catch (const Error& error) {
      return fmt::format("{}; classes: {}", why, error.what());
    }
  }

  at::Tensor prediction() const { return some_numbers(behind(kK, kN, output_)).mul(1.5); }
  at::Tensor target() const {
    if (classes_) return at::arange(kK * kN, at::kLong).remainder(3).reshape(behind(kK, kN, target_));
    return some_numbers(behind(kK, kN, target_), 4);
  }

  std::string gives_rows() const {
    const at::Tensor rows = type_.rows(prediction(), target(), kDelta);
    const Shape due = {kK, kN};
    return shape_of(rows) == due ? ""
                                 : fmt::format("it gives {} instead of {}", to_string(shape_of(rows)), to_string(due));
  }

  std::string is_determined() const {
    const at::Tensor p = prediction(), t = target();
    const at::Tensor first = type_.rows(p, t, kDelta);
    if (!p.equal(prediction()) || !t.equal(target())) return "its prediction or target has changed";
    return difference(first, type_.rows(p, t, kDelta), "called again, it gives");
  }

  std::string rows_are_apart() const {
    const at::Tensor p = prediction(), before = type_.rows(p, target(), kDelta);
    for (std::int64_t n = 0; n < kN; ++n) {
      at::Tensor changed = p.clone();
      changed.select(1, n).add_(0.37);
      const at::Tensor after = type_.rows(changed, target(), kDelta);
      for (std::int64_t other = 0; other < kN; ++other) {
        if (other == n) continue;
        const std::string why =
            difference(before.select(1, other), after.select(1, other), fmt::format("row {}", other));
        if (!why.empty()) return fmt::format("{} once row {} is another", why, n);
      }
    }
    return "";
  }

  // A row whose elements are there twice has the same mean.
  std::string is_mean() const {
    if (output_ != target_ || classes_) return "";  // its rows are no lists of alike elements
    const at::Tensor p = prediction(), t = target();
    return difference(type_.rows(p, t, kDelta), type_.rows(at::cat({p, p}, 2), at::cat({t, t}, 2), kDelta),
                      "with every element twice, it gives");
  }

  std::string gradient() const {
    const at::Tensor p = prediction().requires_grad_(), t = target();
    const auto weighed = [&](const at::Tensor& of) {
      return type_.rows(of, t, kDelta).mul(some_numbers({kK, kN}, 9)).sum();
    };
    weighed(p).backward();
    if (!p.grad().defined()) return "no gradient reaches the prediction";
    const std::vector<double> slopes = tensor_values(p.grad());
    const at::Tensor flat = p.detach().view(-1);
    for (const std::int64_t i : some_elements(flat.numel())) {
      const std::string why = wrong_slope(
          flat, i, slopes[static_cast<std::size_t>(i)], [&] { return weighed(p.detach()).item<double>(); },
          "the prediction");
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string row() const {
    if (!type_.row) return "";
    const at::Tensor p = prediction().requires_grad_(), rows = type_.rows(p, target(), kDelta);
    rows.sum().backward();
    const std::vector<double> predictions = tensor_values(p), targets = tensor_values(target());
    const std::vector<double> due = tensor_values(rows), slopes = tensor_values(p.grad());
    const std::size_t width = predictions.size() / due.size(), wide = targets.size() / due.size();
    for (std::size_t i = 0; i < due.size(); ++i) {
      std::vector<double> own(width);
      const double r = type_.row(std::span(predictions).subspan(i * width, width),
                                 std::span(targets).subspan(i * wide, wide), kDelta, own);
      const auto differ = [](double a, double b) { return std::abs(a - b) > 1e-10 * std::max(1.0, std::abs(a)); };
      if (differ(due[i], r)) return fmt::format("row {}: {} instead of {}", i, r, due[i]);
      for (std::size_t e = 0; e < width; ++e) {
        if (differ(slopes[i * width + e], own[e]))
          return fmt::format("the gradient of row {}: {} instead of {}", i, own[e], slopes[i * width + e]);
      }
    }
    return "";
  }

  void time() {
    const at::Tensor p = prediction(), t = target();
    try {
      rules_.time("for 6 rows", [&] { type_.rows(p, t, kDelta); });
    } catch (...) {
      rules_.result.cost = "";  // what is wrong was told
    }
  }

  const LossType& type_;
  Shape target_, output_;
  bool classes_ = false;
  Rules rules_;
};

}  // namespace

Conformance check_model(const ModelType& type, const nlohmann::json& params, const RuleBegins& begins) {
  return ModelCheck(type, params, begins).check();
}

Conformance check_loss(const LossType& type, const RuleBegins& begins) { return LossCheck(type, begins).check(); }

}  // namespace lanewise
