#include "runtime/finite.h"

#include <cmath>

#include "runtime/loops.h"

namespace lanewise {

bool all_finite(const at::Tensor& flat, std::int64_t count) {
  return flat.scalar_type() == at::kFloat ? loops<float>().all_finite(flat.const_data_ptr<float>(), count)
                                          : loops<double>().all_finite(flat.const_data_ptr<double>(), count);
}

double norm(const at::Tensor& flat, std::int64_t count) {
  return std::sqrt(flat.scalar_type() == at::kFloat ? loops<float>().squares(flat.const_data_ptr<float>(), count)
                                                    : loops<double>().squares(flat.const_data_ptr<double>(), count));
}

}  // namespace lanewise
