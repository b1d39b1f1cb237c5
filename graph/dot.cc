#include "graph/dot.h"

#include <initializer_list>
#include <utility>

namespace lanewise {
namespace {

std::string escape_each(const std::string& text, std::initializer_list<std::pair<char, const char*>> escapes) {
  std::string out;
  for (const char c : text) {
    const char* replacement = nullptr;
    for (const auto& [from, to] : escapes) {
      if (c == from) replacement = to;
    }
    if (replacement) {
      out += replacement;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

// In DOT's quotes only \" is an escape and a backslash stands for itself, so
// that one in front of a quote, or at the end, cannot be written; between < and > it can.
std::string dot_id(const std::string& id) {
  bool plain = true;
  for (std::size_t i = 0, run = 0; i <= id.size(); ++i) {
    const char c = i < id.size() ? id[i] : '"';
    if (c == '"' && run % 2 == 1) plain = false;
    run = c == '\\' ? run + 1 : 0;
  }
  if (!plain && id.find_first_of("<>") == std::string::npos) return "<" + id + ">";
  if (plain) return '"' + escape_each(id, {{'"', "\\\""}}) + '"';
  return '"' + escape_each(id, {{'"', "\\\""}, {'\\', "\\\\"}}) + '"';
}

std::string dot_label(const std::string& text) {
  return '"' + escape_each(text, {{'"', "\\\""}, {'\\', "\\\\"}, {'&', "&amp;"}, {'\n', "\\n"}}) + '"';
}

}  // namespace lanewise
