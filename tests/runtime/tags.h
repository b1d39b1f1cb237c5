// Streams and tags of samples, for tests of what goes by them.
#pragma once

#include <string>
#include <vector>

#include "runtime/services.h"

namespace lanewise {

inline StreamTable stream_table(const std::vector<std::string>& names) {
  static const NodeType source = {.name = "source", .role = Role::kSource};
  Plan plan;
  for (const std::string& name : names) {
    plan.nodes.emplace_back();
    plan.nodes.back().id = name;
    plan.nodes.back().type = &source;
  }
  return StreamTable(plan);
}

// k * n rows, time-major: stream i at step t has seq 10 + t.
inline std::vector<Tag> tags(int k, int n) {
  std::vector<Tag> rows;
  for (int t = 0; t < k; ++t) {
    for (int i = 0; i < n; ++i) rows.push_back({.stream = i, .seq = static_cast<std::uint64_t>(10 + t)});
  }
  return rows;
}

}  // namespace lanewise
