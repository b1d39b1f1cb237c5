#include "graph/schema.h"

#include <doctest/doctest.h>

#include "tests/golden.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

TEST_CASE("schema: every type, parameter, default and bound of the table is in it, and nothing internal") {
  const auto json = schema(test_registry());
  check_golden("graph/golden/schema.json", json.dump(1) + "\n");
  CHECK_FALSE(json.at("$defs").contains("node.score"));
}

TEST_CASE("schema: every reference in it has a definition") {
  const auto json = schema(test_registry());
  const std::string text = json.dump();
  const std::string start = "\"$ref\":\"#/$defs/";
  int found = 0;
  for (std::size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1), ++found) {
    const std::size_t begin = at + start.size();
    CHECK(json.at("$defs").contains(text.substr(begin, text.find('"', begin) - begin)));
  }
  CHECK(found > 10);
}

}  // namespace
}  // namespace lanewise
