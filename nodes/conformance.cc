#include "nodes/conformance.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "nodes/conformance_rules.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

// What is wrong with these parameters of a type.
std::vector<Problem> read(const std::string& name, const std::function<void(Fields&)>& tell,
                          const nlohmann::json& params, nlohmann::json* resolved = nullptr) {
  std::vector<Problem> problems;
  Fields fields({&params, name,
                 [](const std::string& key) {
                   return Place{key, key};
                 },
                 [](const std::string&) { return std::string(); }},
                problems);
  if (tell) tell(fields);
  fields.finish();
  if (resolved != nullptr) *resolved = fields.resolved();
  return problems;
}

std::string first_of(const std::vector<Problem>& problems) { return problems.empty() ? "" : problems.front().rule; }

std::string tells_itself(const std::string& name, const std::string& help, const std::vector<FieldInfo>& infos) {
  if (name.empty() || help.empty()) return "it has no name or no help";
  std::set<std::string> names;
  for (const FieldInfo& info : infos) {
    if (!names.insert(info.name).second) return fmt::format("the parameter {} is there twice", info.name);
    if (info.help.empty()) return fmt::format("the parameter {} has no help", info.name);
  }
  return "";
}

std::string takes_defaults(const std::string& name, const std::function<void(Fields&)>& fields,
                           const nlohmann::json& params) {
  if (const std::string why = first_of(read(name, fields, params)); !why.empty()) return why;
  std::size_t required = 0;
  nlohmann::json defaults = params;
  for (const FieldInfo& info : describe(fields)) {
    required += info.required;
    if (!info.required && !info.fallback.is_null() && !params.contains(info.name)) defaults[info.name] = info.fallback;
  }
  if (const std::string why = first_of(read(name, fields, defaults)); !why.empty())
    return "a default is refused: " + why;
  if (read(name, fields, nlohmann::json::object()).size() < required)
    return "a parameter that is required may be left out";
  return "";
}

std::string refuses_wrong(const std::string& name, const std::function<void(Fields&)>& fields,
                          const nlohmann::json& params) {
  const std::map<std::string, nlohmann::json> wrong = {
      {"integer", 3.7}, {"number", true}, {"text", 5}, {"file", 5}, {"true or false", 1}};
  std::string why;
  const auto refuses = [&](const std::string& parameter, const nlohmann::json& value) {
    nlohmann::json with = params;
    with[parameter] = value;
    const std::vector<Problem> problems = read(name, fields, with);
    const auto there = [&](const Problem& problem) { return problem.place.pointer.starts_with(parameter); };
    if (why.empty() && std::ranges::none_of(problems, there))
      why = fmt::format("it takes {} as {}", value.dump(), parameter);
  };
  for (const FieldInfo& info : describe(fields)) {
    if (const auto it = wrong.find(info.type); it != wrong.end()) refuses(info.name, it->second);
    if (info.type == "integer" && info.low) refuses(info.name, static_cast<std::int64_t>(*info.low) - 1);
    if (info.type == "number" && info.low) refuses(info.name, *info.low - 1);
    if (info.type == "number" && info.high) refuses(info.name, *info.high + 1);
    if (!info.choices.empty() && info.type == "text") refuses(info.name, "none of these");
  }
  refuses("no_such_parameter", 1);
  return why;
}

}  // namespace

bool Conformance::holds() const {
  return std::ranges::all_of(findings, [](const Finding& finding) { return finding.why_not.empty(); });
}

bool Rules::rule(const std::string& rule, const std::function<std::string()>& try_it) {
  if (begins_) begins_(rule);
  std::string why_not;
  try {
    why_not = try_it();
  } catch (const c10::Error& error) {
    why_not = fmt::format("LibTorch threw: {}", error.what_without_backtrace());
  } catch (const std::exception& error) {
    why_not = fmt::format("it threw: {}", error.what());
  } catch (...) {
    why_not = "it threw something that is no exception";
  }
  result.findings.push_back({rule, why_not});
  return why_not.empty();
}

void Rules::time(const std::string& unit, const std::function<void()>& call) {
  constexpr int kBatches = 5, kCalls = 40;
  double best = INFINITY;
  for (int i = 0; i < kBatches; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < kCalls; ++k) call();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  result.cost = fmt::format("{:.1f} µs {}", best / kCalls, unit);
}

bool check_parameters(Rules& rules, const std::string& name, const std::string& help,
                      const std::function<void(Fields&)>& fields, const nlohmann::json& params) {
  rules.rule("tells what it is, with a help text for itself and each parameter",
             [&] { return tells_itself(name, help, describe(fields)); });
  const bool sound = rules.rule("takes its own defaults, and what has none must be given",
                                [&] { return takes_defaults(name, fields, params); });
  rules.rule("refuses a wrong type, a value out of bounds and an unknown name",
             [&] { return refuses_wrong(name, fields, params); });
  return sound;
}

nlohmann::json all_params(const std::string& name, const std::function<void(Fields&)>& fields,
                          const nlohmann::json& params) {
  nlohmann::json resolved;
  const std::string why = first_of(read(name, fields, params, &resolved));
  if (!why.empty()) throw Error(Exit::kPipeline, why);
  return resolved;
}

at::Tensor some_numbers(const Shape& shape, double start) {
  const std::int64_t count = element_count(shape);
  return at::sin(at::arange(count, at::kDouble) * 1.7 + 0.3 + start).reshape(shape);
}

std::string difference(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  constexpr double kRounding = 1e-10;
  if (a.sizes() != b.sizes())
    return fmt::format("{}: {} instead of {}", what, to_string(shape_of(b)), to_string(shape_of(a)));
  const std::vector<double> x = tensor_values(a.detach()), y = tensor_values(b.detach());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= kRounding * std::max(1.0, std::abs(x[i]))))
      return fmt::format("{}: {} instead of {}", what, y[i], x[i]);
  }
  return "";
}

std::string wrong_slope(const at::Tensor& at, std::int64_t i, double slope, const std::function<double()>& value,
                        const std::string& name) {
  constexpr double kTolerance = 1e-6;
  const c10::NoGradGuard no_gradient;
  const double here = tensor_values(at)[static_cast<std::size_t>(i)];
  const double h = 1e-6 * std::max(1.0, std::abs(here));
  const auto value_at = [&](double x) {
    set_element(at, i, x);
    return value();
  };
  const double above = value_at(here + h), below = value_at(here - h), measured = (above - below) / (2 * h);
  set_element(at, i, here);
  if (std::abs(measured - slope) <= kTolerance * std::max({1.0, std::abs(measured), std::abs(slope)})) return "";
  return fmt::format("the slope along element {} of {} is {:.6g}, and its gradient says {:.6g}", i, name, measured,
                     slope);
}

}  // namespace lanewise
