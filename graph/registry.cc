#include "graph/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/plan.h"
#include "graph/text.h"

namespace lanewise {
namespace {

template <class T>
const T* find_in(const std::vector<T>& types, const std::string& name) {
  const auto it = std::find_if(types.begin(), types.end(), [&](const T& type) { return type.name == name; });
  return it == types.end() ? nullptr : &*it;
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string to_string(Role role) {
  switch (role) {
    case Role::kSource:
      return "source";
    case Role::kPerSample:
      return "per-sample";
    case Role::kJoin:
      return "join";
    case Role::kCompute:
      return "compute";
    case Role::kReduce:
      return "reduce";
    case Role::kOptimizer:
      return "optimizer";
    case Role::kSink:
      return "sink";
  }
  return "";
}

void InferContext::problem(const std::string& rule, const std::string& param) { add(Exit::kPipeline, rule, param); }

void InferContext::data_problem(const std::string& rule, const std::string& param) { add(Exit::kData, rule, param); }

void InferContext::add(Exit exit, const std::string& rule, const std::string& param) {
  const auto it = node.param_places.find(param);
  problems_->push_back({it == node.param_places.end() ? node.place : it->second, rule, exit});
}

const NodeType* Registry::find_node(const std::string& name) const { return find_in(nodes, name); }

const PartType* Registry::find_model(const std::string& name) const { return find_in(models, name); }

std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string wanted = lower(name);
  std::string best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(wanted.size(), candidate.size()),
                      shorter = std::min(wanted.size(), candidate.size());
    const std::size_t limit = std::max<std::size_t>(1, longer / 3);
    if (longer - shorter > limit) continue;
    const std::size_t distance = edit_distance(wanted, lower(candidate));
    if (distance > limit || distance >= shorter) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near));
}

}  // namespace lanewise
