// What the conformance checks of nodes, models and losses have in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>

#include "nodes/conformance.h"

namespace lanewise {

// Conformance::untried of a type whose code is in a file.
constexpr const char* kTriedByRuns = "the rest is the file's, which only a run opens and tries out before step 0";

// Tries rules one after the other.
class Rules {
 public:
  explicit Rules(RuleBegins begins) : begins_(std::move(begins)) {}

  // `try_it` returns what breaks the rule, or "". An exception breaks it, too. Whether it holds.
  bool rule(const std::string& rule, const std::function<std::string()>& try_it);
  // What one call takes, at best.
  void time(const std::string& unit, const std::function<void()>& call);

  Conformance result;

 private:
  const RuleBegins begins_;
};

// The rules of what a type tells of itself. `params` are those that it is tried with. False: its parameters cannot be
// read.
bool check_parameters(Rules& rules, const std::string& name, const std::string& help,
                      const std::function<void(Fields&)>& fields, const nlohmann::json& params);
// Every parameter with the value in force.
nlohmann::json all_params(const std::string& name, const std::function<void(Fields&)>& fields,
                          const nlohmann::json& params);

// Numbers that look like any and are always the same, between -1 and 1.
at::Tensor some_numbers(const Shape& shape, double start = 0);
// "" or where two tensors, said to be `a` and `b`, differ by more than rounding in float64.
std::string difference(const at::Tensor& a, const at::Tensor& b, const std::string& what);
// "" or where `slope` is not that of `value` in element `i` of `at`, by the central difference.
std::string wrong_slope(const at::Tensor& at, std::int64_t i, double slope, const std::function<double()>& value,
                        const std::string& name);

}  // namespace lanewise
