// The table of losses.
#include "runtime/loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/values.h"

namespace lanewise {
namespace {

// [k, n, …] -> [k, n]
at::Tensor row_means(const at::Tensor& elements) { return elements.flatten(2).mean(2); }

// The mean over a row's elements of what `compare` gives for each difference, and its slopes.
template <class F>
double mean_of(std::span<const double> prediction, std::span<const double> target, std::span<double> gradient,
               const F& compare) {
  if (prediction.size() != target.size() || prediction.size() != gradient.size())
    throw Error(Exit::kInternal, "a row's prediction and target have different sizes");
  const auto n = static_cast<double>(prediction.size());
  double sum = 0;
  for (std::size_t i = 0; i < prediction.size(); ++i) {
    double slope = 0;
    sum += compare(prediction[i] - target[i], slope);
    gradient[i] = slope / n;
  }
  return sum / n;
}

void require_equal_shapes(const char* loss, const at::Tensor& prediction, const at::Tensor& target) {
  if (prediction.dim() < 3 || prediction.sizes() != target.sizes()) {
    throw Error(Exit::kInternal, fmt::format("{}: prediction {} and target {} have different shapes", loss,
                                             to_string(prediction.sizes().vec()), to_string(target.sizes().vec())));
  }
}

LossType mse() {
  LossType type;
  type.name = "mse";
  type.help = "squared difference";
  type.fields = [](Fields&) {};
  type.output_shape = std::bind_front(shape_of_numbers, "mse");
  type.rows = [](const at::Tensor& prediction, const at::Tensor& target, double) {
    require_equal_shapes("mse", prediction, target);
    return row_means(at::mse_loss(prediction, target, at::Reduction::None));
  };
  type.row = [](std::span<const double> prediction, std::span<const double> target, double,
                std::span<double> gradient) {
    return mean_of(prediction, target, gradient, [](double d, double& slope) {
      slope = 2 * d;
      return d * d;
    });
  };
  return type;
}

LossType huber() {
  LossType type;
  type.name = "huber";
  type.help = "half the squared difference up to delta, linear beyond";
  type.fields = [](Fields&) {};
  type.output_shape = std::bind_front(shape_of_numbers, "huber");
  type.rows = [](const at::Tensor& prediction, const at::Tensor& target, double delta) {
    require_equal_shapes("huber", prediction, target);
    return row_means(at::huber_loss(prediction, target, at::Reduction::None, delta));
  };
  type.row = [](std::span<const double> prediction, std::span<const double> target, double delta,
                std::span<double> gradient) {
    return mean_of(prediction, target, gradient, [delta](double d, double& slope) {
      slope = std::clamp(d, -delta, delta);
      return std::abs(d) <= delta ? d * d / 2 : delta * (std::abs(d) - delta / 2);
    });
  };
  return type;
}

Shape shape_of_scores(const Shape& target, bool integer_target, const std::optional<Shape>& outputs) {
  if (!integer_target || target != Shape{1}) {
    throw Error(Exit::kPipeline,
                fmt::format("cross_entropy takes one class number a sample (an integer target [1]), not "
                            "{}{}",
                            integer_target ? "" : "numbers ", to_string(target)));
  }
  if (!outputs)
    throw Error(Exit::kPipeline, "cross_entropy needs to know how many classes there are; give the model outputs");
  if (outputs->size() != 1) {
    throw Error(Exit::kPipeline, fmt::format("cross_entropy takes one score a class, not {}", to_string(*outputs)));
  }
  return *outputs;
}

void require_class(std::int64_t number, std::int64_t classes) {
  if (number >= 0 && number < classes) return;
  throw Error(Exit::kData, fmt::format("cross_entropy: the target {} is none of the classes 0 to {}; give the model "
                                       "as many outputs as there are classes",
                                       number, classes - 1));
}

void require_classes(const at::Tensor& target, std::int64_t classes) {
  const at::Tensor numbers = target.contiguous();
  for (const std::int64_t number : std::span(numbers.const_data_ptr<std::int64_t>(), numbers.numel()))
    require_class(number, classes);
}

LossType cross_entropy() {
  LossType type;
  type.name = "cross_entropy";
  type.help = "minus the logarithm of the probability of the right class";
  type.fields = [](Fields&) {};
  type.output_shape = shape_of_scores;
  type.check = require_classes;
  type.rows = [](const at::Tensor& prediction, const at::Tensor& target, double) {
    const bool fits = prediction.dim() == 3 && target.dim() == 3 && target.size(2) == 1 &&
                      prediction.size(0) == target.size(0) && prediction.size(1) == target.size(1);
    if (!fits || target.scalar_type() != at::kLong) {
      throw Error(Exit::kInternal, fmt::format("cross_entropy: prediction {} and target {} do not go together",
                                               to_string(prediction.sizes().vec()), to_string(target.sizes().vec())));
    }
    if (target.is_cpu()) require_classes(target, prediction.size(2));  // else they were looked at before
    return at::log_softmax(prediction, 2).gather(2, target).squeeze(2).neg();
  };
  type.row = [](std::span<const double> scores, std::span<const double> target, double, std::span<double> gradient) {
    const auto number = static_cast<std::int64_t>(target[0]);
    require_class(number, static_cast<std::int64_t>(scores.size()));
    const double most = std::ranges::max(scores);  // so that no exponential overflows
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - most);
    for (std::size_t i = 0; i < scores.size(); ++i) gradient[i] = std::exp(scores[i] - most) / sum;
    gradient[number] -= 1;
    return std::log(sum) + most - scores[number];
  };
  return type;
}

std::vector<LossType>& table() {
  static std::vector<LossType> types = {mse(), huber(), cross_entropy(), torchscript_loss()};
  return types;
}

}  // namespace

Shape shape_of_numbers(const std::string& loss, const Shape& target, bool integer_target,
                       const std::optional<Shape>& outputs) {
  if (integer_target) {
    throw Error(Exit::kPipeline,
                fmt::format("{} takes targets that are numbers, not class numbers; use cross_entropy", loss));
  }
  if (target.empty()) throw Error(Exit::kPipeline, fmt::format("{} takes targets of rank 1 or more", loss));
  if (outputs && element_count(*outputs) != element_count(target)) {
    throw Error(Exit::kPipeline,
                fmt::format("the model gives {} values, but {} needs one for each value of the target {}",
                            element_count(*outputs), loss, to_string(target)));
  }
  return target;
}

const std::vector<LossType>& loss_types() { return table(); }

void add_loss_type(LossType type) { table().push_back(std::move(type)); }

const LossType* find_loss_type(const std::string& name) {
  const auto it = std::ranges::find(table(), name, &LossType::name);
  return it == table().end() ? nullptr : &*it;
}

const LossType& loss_type(const std::string& name) {
  if (const LossType* type = find_loss_type(name)) return *type;
  throw Error(Exit::kInternal, fmt::format("no loss {}", name));
}

}  // namespace lanewise
