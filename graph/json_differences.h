// What is different between two JSON values, member by member.
#pragma once

#include <string>

namespace lanewise {

// Calls visit(where, before, now) for each value that differs and is no object on both sides; a null pointer stands for
// what is not there. `where` is the path, its keys joined by dots; members come in the order of `before`, then what
// only `now` has.
template <class Json, class Visit>
void visit_differences(const std::string& where, const Json& before, const Json& now, const Visit& visit) {
  if (before == now) return;
  if (!before.is_object() || !now.is_object()) return visit(where, &before, &now);
  Json keys = before;
  keys.update(now);
  for (const auto& [key, value] : keys.items()) {
    const std::string below = where.empty() ? key : where + "." + key;
    const auto old = before.find(key), fresh = now.find(key);
    if (old != before.end() && fresh != now.end()) {
      visit_differences(below, *old, *fresh, visit);
    } else {
      visit(below, old == before.end() ? nullptr : &*old, fresh == now.end() ? nullptr : &*fresh);
    }
  }
}

}  // namespace lanewise
