#include "graph/layer.h"

#include <fmt/format.h>

#include <utility>

#include "graph/error.h"
#include "graph/text.h"

namespace lanewise {
namespace {

// A --swap: the key ends where an object begins, since an id may hold "=".
Change read_swap(const Override& given) {
  const std::string& text = given.text;
  const auto opens = [&](std::size_t at) {
    const std::size_t next = text.find_first_not_of(" \t\n", at + 1);
    return next != std::string::npos && text[next] == '{';
  };
  std::size_t equals = text.find('=');
  while (equals != std::string::npos && !opens(equals)) equals = text.find('=', equals + 1);
  if (equals == std::string::npos || equals == 0) {
    throw Error(Exit::kCommandLine,
                fmt::format("--swap {}: write it as 'ID={{\"type\":\"TYPE\",\"params\":{{…}}}}'", escaped(text)));
  }
  const std::string id = text.substr(0, equals);
  return {id, text.substr(equals + 1), std::nullopt, {"", "--swap " + id, given.folder}};
}

// A --set: "=" stands behind the first dot, since an id may hold one, or behind the id of what is added.
Change read_set(const Override& given) {
  const std::string& text = given.text;
  const Origin origin{"", "--set " + text, given.folder};
  if (find_bad_utf8(text) != std::string::npos) {
    throw Error(Exit::kCommandLine, escaped(origin.option) + ": this is not UTF-8");
  }
  const std::size_t dot = text.find('.'), first = text.find('=');
  const bool whole = text.starts_with("name=") || (text.starts_with('+') && first < dot);
  const std::size_t equals = whole ? first : dot == std::string::npos ? dot : text.find('=', dot);
  if (equals == std::string::npos) return {text, std::nullopt, std::nullopt, origin};
  return {text.substr(0, equals), text.substr(equals + 1), std::nullopt, origin};
}

}  // namespace

Layer read_layer(const std::vector<Override>& overrides) {
  Layer layer;
  for (const Override& given : overrides) {
    if (given.kind == Override::Kind::kSwap) {
      layer.swaps.push_back(read_swap(given));
    } else if (given.kind == Override::Kind::kSet) {
      layer.sets.push_back(read_set(given));
    }
  }
  return layer;
}

Layer read_layer(const Document& file, bool nodes, std::vector<Problem>& problems) {
  Layer layer;
  for (auto [key, list] : {std::pair{"swap", &layer.swaps}, std::pair{"set", &layer.sets}}) {
    const std::string pointer = pointer_to(std::string(key));
    const auto object = file.root().find(key);
    if (object == file.root().end() || (nodes && list == &layer.swaps)) continue;
    if (!object->is_object()) {
      problems.push_back({file.place(pointer), fmt::format("\"{}\" must be an object, not {}", key, shown(*object))});
      continue;
    }
    for (const std::string& name : file.keys(pointer)) {
      list->push_back(
          {name, std::nullopt, object->at(name), {pointer + pointer_to(name), "", "", nodes ? nullptr : &file}});
    }
  }
  return layer;
}

}  // namespace lanewise
