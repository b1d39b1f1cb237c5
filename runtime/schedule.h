// The learning rate of each step. Formulas are the closed forms of PyTorch's schedulers of those names.
//
//   constant   lr
//   step       lr · decay^⌊t / every⌋                                  (StepLR)
//   cosine     lr_min + (lr - lr_min) · (1 + cos(π·min(t, T) / T)) / 2    (CosineAnnealingLR, which would rise again
//   after T) warmup     lr · (f + (1 - f) · min(t, W) / W)                      (LinearLR)     f = 1 / W
//
// t: steps applied before this one. With `warmup_steps` W > 0 the first W steps rise as in warmup whatever the
// schedule, which then begins with its t = 0 (SequentialLR).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/fields.h"

namespace lanewise {

struct Schedule {
  std::string name = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t every = 1000;                // step
  double decay = 0.1;                       // step
  std::optional<std::int64_t> decay_steps;  // cosine: T; absent: what run.steps leaves after the warm-up
  double lr_min = 0;                        // cosine

  void fields(Fields& f);
  // The rate of the step after `applied` ones. `run_steps`: run.steps.
  double rate(double lr, std::uint64_t applied, std::optional<std::int64_t> run_steps) const;
  // "" or what is missing.
  std::string problem(std::optional<std::int64_t> run_steps) const;
};

}  // namespace lanewise
