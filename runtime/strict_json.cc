#include "runtime/strict_json.h"

#include <set>
#include <vector>

#include "graph/error.h"
#include "graph/text.h"

namespace lanewise {
namespace {

constexpr int kMaxDepth = 64;

template <class Json>
Json parse(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& rule) { throw Error(Exit::kCheckpoint, where + ": " + rule); };
  if (!text.starts_with('{')) refuse("is no JSON object: it does not begin with {");
  using Event = typename Json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Event event, Json& parsed) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxDepth) {
      refuse(fmt::format("is nested deeper than {}", kMaxDepth));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      if (!keys.back().insert(key).second) refuse(fmt::format("has the key {} twice", in_quotes(key)));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view rule = error.what();
    const std::size_t bracket = rule.find("] ");  // behind the library's name of the error
    refuse("is not JSON: " + escaped(rule.substr(bracket == std::string_view::npos ? 0 : bracket + 2)));
  }
  return {};
}

}  // namespace

nlohmann::json parse_strict(std::string_view text, const std::string& where) {
  return parse<nlohmann::json>(text, where);
}

nlohmann::ordered_json parse_strict_ordered(std::string_view text, const std::string& where) {
  return parse<nlohmann::ordered_json>(text, where);
}

}  // namespace lanewise
