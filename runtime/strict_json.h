// JSON as it stands in files that programs write: no comment, no key twice, nested at most 64 deep, well-formed UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lanewise {

// The object that `text` is. Throws Error(kCheckpoint) "WHERE: RULE".
nlohmann::json parse_strict(std::string_view text, const std::string& where);
// The same with the keys in their order; slow for objects of many thousand keys.
nlohmann::ordered_json parse_strict_ordered(std::string_view text, const std::string& where);

}  // namespace lanewise
