// A Loss compares a prediction with its target, row by row; nothing is ever broadcast.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/registry.h"
#include "graph/signature.h"

namespace lanewise {

struct LossType : PartType {
  // The prediction's shape for a target's, both without a batch axis. `outputs`: what the model was told, if anything.
  // Throws Error(kPipeline) when the target does not suit, or `outputs` contradicts or is needed and absent.
  std::function<Shape(const Shape& target, bool integer_target, const std::optional<Shape>& outputs)> output_shape;

  // r_r, the mean over a row's target elements: prediction [k, n, …], target [k, n, …] -> [k, n], differentiable.
  // On a device whose memory the host does not see, the target was checked before. `delta`: huber's, else ignored.
  std::function<at::Tensor(const at::Tensor& prediction, const at::Tensor& target, double delta)> rows;

  // Of targets on the host, for predictions of so many values. Throws Error(kData) where one is none that the loss
  // takes. Null: it takes all.
  std::function<void(const at::Tensor& target, std::int64_t outputs)> check;

  // The same of one row without autograd: r, and to `gradient`, as long as the prediction, ∂r/∂prediction. Null: not
  // told so.
  std::function<double(std::span<const double> prediction, std::span<const double> target, double delta,
                       std::span<double> gradient)>
      row;

  // A type whose code is in a file has this in place of rows(), for only a run may load code: the type with rows(), for
  // the archive (runtime/archive.h) of these bytes and path, and rows of these shapes. What it gives is used by one
  // thread. Throws Error(kPipeline) or Error(kData), naming the file.
  std::function<LossType(const std::string& bytes, const std::string& path, at::ScalarType dtype, const Shape& output,
                         const Shape& target, bool integer_target)>
      load;
};

// For LossType::output_shape of a loss that compares number with number: the target's. Throws as said there.
Shape shape_of_numbers(const std::string& loss, const Shape& target, bool integer_target,
                       const std::optional<Shape>& outputs);

const std::vector<LossType>& loss_types();                // mse, huber, cross_entropy, torchscript
const LossType& loss_type(const std::string& name);       // Requires: it is in the table
const LossType* find_loss_type(const std::string& name);  // null: it is not
// Adds a type to the table. To be called before any node is made, and by one thread.
void add_loss_type(LossType type);
LossType torchscript_loss();

}  // namespace lanewise
