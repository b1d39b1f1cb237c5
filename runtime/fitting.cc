#include "runtime/fitting.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

namespace lanewise {

void Fitting::add(const Sample& sample) {
  if (sample.tag.filler) return;
  x_.add(sample.x);
  if (target_ && sample.tag.weight > 0 && at::isFloatingType(sample.y.scalar_type())) y_.add(sample.y);
}

Statistics Fitting::statistics() const { return {x_.mean(), x_.scale(), y_.mean(), y_.scale()}; }

nlohmann::json Fitting::state() const { return {{"x", x_.state()}, {"y", y_.state()}}; }

void Fitting::restore(const nlohmann::json& state) {
  x_.restore(state.at("x"));
  y_.restore(state.at("y"));
}

}  // namespace lanewise
