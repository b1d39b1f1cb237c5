#include "graph/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "graph/text.h"

namespace lanewise {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && text[0] != '-';
  return whole ? std::optional(value) : std::nullopt;
}

// "*", "3", "0..7".
std::optional<Instances> range(const std::string& text) {
  if (text == "*") return Instances{};
  const std::size_t dots = text.find("..");
  const auto first = number(std::string_view(text).substr(0, dots));
  const auto last = dots == std::string::npos ? first : number(std::string_view(text).substr(dots + 2));
  if (!first || !last || *first > *last) return std::nullopt;
  return Instances{*first, *last};
}

}  // namespace

std::optional<ChangeKey> parse_key(const std::string& text, std::string& why) {
  ChangeKey key;
  std::size_t start = 0;
  if (text.starts_with('+') || text.starts_with('~')) {
    key.act = text[start++] == '+' ? ChangeKey::Act::kAdd : ChangeKey::Act::kRemove;
  }
  std::size_t end = std::min(text.find_first_of(".[", start), text.size());
  key.id = text.substr(start, end - start);
  if (end < text.size() && text[end] == '[') {
    const std::size_t close = text.find(']', end);
    const std::string inside = text.substr(end + 1, close == std::string::npos ? close : close - end - 1);
    if (close == std::string::npos || (close + 1 < text.size() && text[close + 1] != '.') ||
        !(key.instances = range(inside))) {
      why = fmt::format("{} names no instances; write {}[*], {}[3] or {}[0..7]",
                        in_quotes(text.substr(end, close == std::string::npos ? close : close + 1 - end)), key.id,
                        key.id, key.id);
      return std::nullopt;
    }
    end = close + 1;
  }
  if (end < text.size()) {
    key.rest = text.substr(end + 1);
    const bool inner = key.id == "evaluate" && key.rest.starts_with("set.");  // what comes then is a key itself
    if (inner) key.path.emplace_back("set");
    key.path.emplace_back(inner ? key.rest.substr(4) : "");
    for (const char c : inner ? std::string() : key.rest) {
      if (c == '.') {
        key.path.emplace_back();
      } else {
        key.path.back() += c;
      }
    }
  }
  if (key.id.empty() || std::find(key.path.begin(), key.path.end(), "") != key.path.end()) {
    why = "write it as ID.PARAMETER, run.NAME or models.NAME.PARAMETER";
    return std::nullopt;
  }
  return key;
}

std::optional<ChosenInstances> choose_instances(const Spec& spec, const ChangeKey& key,
                                                const std::vector<std::string>& others, std::string& why) {
  const auto ref = spec.find(key.id);
  if (!ref) {
    why = spec.unknown(key.id, others);
    return std::nullopt;
  }
  if (!key.instances) {
    if (ref->instance < 0) return ChosenInstances{ref->node, {}};
    return ChosenInstances{ref->node, {ref->instance, ref->instance}};
  }
  const NodeSpec& node = spec.nodes[ref->node];
  if (ref->instance >= 0) {
    why = fmt::format("{} is one instance of {}; write {}[…]", in_quotes(key.id), in_quotes(node.id), escaped(node.id));
    return std::nullopt;
  }
  const std::int64_t last = node.count() - 1;
  const bool every = key.instances->last == Instances().last;
  if (!every && key.instances->last > last) {
    why = fmt::format("there is no {}: {} has {}, {}", in_quotes(fmt::format("{}[{}]", node.id, key.instances->last)),
                      in_quotes(node.id), counted(node.count(), "instance"), instances_text(node.id, 0, last));
    return std::nullopt;
  }
  return ChosenInstances{ref->node, *key.instances};
}

}  // namespace lanewise
