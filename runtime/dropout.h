// Dropout masks by a counter: the mask of a layer for a sample is a function of (run seed, stream's name, seq, layer)
// and of nothing else, so that fused equals unfused and resumed equals never stopped.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/signature.h"
#include "runtime/random.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

// Why what has dropout cannot be recorded.
inline constexpr const char* kHostMasks = "the masks of dropout are drawn on the host";

// Any thread may ask for masks: nothing changes after construction.
class Dropout {
 public:
  Dropout(std::uint64_t seed, const StreamTable& streams);

  // [rows.size(), …shape], on the host in `dtype`: an element is 0 with probability p, else 1 / (1 - p). `layer` counts
  // a model's dropouts from 0. Requires: 0 <= p < 1; layer < 65,536; seq < 2^48.
  at::Tensor mask(std::span<const Tag> rows, int layer, const Shape& shape, double p, at::ScalarType dtype) const;

 private:
  std::vector<Random> streams_;  // by stream index
};

}  // namespace lanewise
