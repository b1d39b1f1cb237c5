#include "runtime/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lanewise {

void Schedule::fields(Fields& f) {
  f.add("schedule", &name, "how the learning rate goes on").one_of({"constant", "step", "cosine", "warmup"});
  f.add("warmup_steps", &warmup_steps, "the learning rate rises to lr over so many").at_least(0).unit("steps");
  f.add("decay_every", &every, "step: multiplies the rate by `decay` each so many").at_least(1).unit("steps");
  f.add("decay", &decay, "step: the factor").above(0).at_most(1);
  f.add("decay_steps", &decay_steps, "cosine: steps down to lr_min; without it, those that run.steps leaves")
      .at_least(1)
      .unit("steps");
  f.add("lr_min", &lr_min, "cosine: the rate at the end").at_least(0);
  if (name == "warmup" && warmup_steps == 0)
    f.problem("warmup_steps", "schedule warmup needs \"warmup_steps\" above 0");
}

std::string Schedule::problem(std::optional<std::int64_t> run_steps) const {
  if (name != "cosine" || decay_steps) return "";
  if (!run_steps) return "schedule cosine needs \"decay_steps\" where the run has no \"steps\"";
  if (*run_steps <= warmup_steps)
    return "warmup_steps leave no step for schedule cosine; lower them, or raise run.steps";
  return "";
}

double Schedule::rate(double lr, std::uint64_t applied, std::optional<std::int64_t> run_steps) const {
  const auto warmup = static_cast<std::uint64_t>(warmup_steps);
  if (applied < warmup) {
    const double w = static_cast<double>(warmup), start = 1 / w;
    return lr * (start + (1 - start) * static_cast<double>(applied) / w);
  }
  const std::uint64_t t = applied - warmup;
  if (name == "step") return lr * std::pow(decay, static_cast<double>(t / static_cast<std::uint64_t>(every)));
  if (name == "cosine") {
    const double length = static_cast<double>(decay_steps ? *decay_steps : *run_steps - warmup_steps);
    const double turn = std::min(static_cast<double>(t) / length, 1.0);
    return lr_min + (lr - lr_min) * (1 + std::cos(std::numbers::pi * turn)) / 2;
  }
  return lr;
}

}  // namespace lanewise
