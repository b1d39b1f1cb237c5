#include "runtime/schedule.h"

#include "tests/check.h"

using namespace lanewise;

namespace {

std::vector<double> rates(const Schedule& schedule, double lr, int steps,
                          std::optional<std::int64_t> run_steps = std::nullopt) {
  std::vector<double> all;
  for (int t = 0; t < steps; ++t) all.push_back(schedule.rate(lr, static_cast<std::uint64_t>(t), run_steps));
  return all;
}

void check_equal(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
}

}  // namespace

// The figures are those of torch.optim.lr_scheduler's LinearLR, StepLR and CosineAnnealingLR.
TEST_CASE("schedule: constant, step, cosine and warmup give PyTorch's rates") {
  check_equal(rates({.name = "constant"}, 0.1, 3), {0.1, 0.1, 0.1});
  check_equal(rates({.name = "step", .every = 2, .decay = 0.5}, 0.8, 6), {0.8, 0.8, 0.4, 0.4, 0.2, 0.2});
  check_equal(rates({.name = "cosine", .decay_steps = 4, .lr_min = 0.2}, 1, 6),
              {1, 0.8828427124746190, 0.6, 0.3171572875253810, 0.2, 0.2});
  check_equal(rates({.name = "warmup", .warmup_steps = 4}, 1, 6), {0.25, 0.4375, 0.625, 0.8125, 1, 1});
}

TEST_CASE("schedule: after a warm-up the others begin, and cosine lasts as long as the run") {
  check_equal(rates({.name = "cosine", .warmup_steps = 2}, 1, 6, 6),
              {0.5, 0.75, 1, 0.8535533905932737, 0.5, 0.14644660940672627});
  check_equal(rates({.name = "step", .warmup_steps = 2, .every = 2, .decay = 0.1}, 1, 6), {0.5, 0.75, 1, 1, 0.1, 0.1});
}

TEST_CASE("schedule: cosine without a length is refused") {
  CHECK(Schedule{.name = "cosine"}.problem(std::nullopt) ==
        "schedule cosine needs \"decay_steps\" where the run has no \"steps\"");
  CHECK(Schedule{.name = "cosine", .warmup_steps = 9}.problem(9) ==
        "warmup_steps leave no step for schedule cosine; lower them, or raise run.steps");
  CHECK(Schedule{.name = "cosine"}.problem(9).empty());
}
