// Fits the normalize nodes of a training plan before its first step.
#pragma once

#include <functional>

#include "graph/plan.h"
#include "runtime/services.h"

namespace lanewise {

// For every normalize node in plan order: drives fresh instances of its upstream chain over one pass (or `fit_samples`)
// and sets the node's statistics in `normalization`. `look_up` is called every so many samples; what it throws breaks
// off.
void fit_normalizers(const Plan& train, const Services& services, Normalization& normalization,
                     const std::function<void()>& look_up);

}  // namespace lanewise
