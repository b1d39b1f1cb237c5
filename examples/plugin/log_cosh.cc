// log_cosh: the logarithm of the hyperbolic cosine of the difference: like its square where it is small, like its
// absolute value where it is large.
//
//   r = mean of |d| + log(1 + exp(-2|d|)) - log 2,   d = prediction - target
#include <ATen/ops/softplus.h>

#include <cmath>
#include <functional>

#include "runtime/loss.h"

lanewise::LossType log_cosh() {
  lanewise::LossType type;
  type.name = "log_cosh";
  type.help = "logarithm of the hyperbolic cosine of the difference";
  type.output_shape = std::bind_front(lanewise::shape_of_numbers, "log_cosh");
  type.rows = [](const at::Tensor& prediction, const at::Tensor& target, double) {
    const at::Tensor distance = prediction.sub(target).abs();
    return distance.add(at::softplus(distance.mul(-2))).sub(std::log(2)).flatten(2).mean(2);
  };
  return type;
}
