#include "tools/output.h"

#include "tests/check.h"

namespace lanewise {

TEST_CASE("output: what is not printable is made visible, everything else stays as it is") {
  CHECK(visible("plain text,\nzürich → 6\"") == "plain text,\nzürich → 6\"");
  CHECK(visible("a\x1b[31mb\r\tc\x7f") == "a\\x1b[31mb\\x0d\\x09c\\x7f");
  CHECK(visible("\xc2\x9b"
                "2J") == "\\xc2\\x9b2J");
  CHECK(visible("bad \xff\xc3 utf-8") == "bad \\xff\\xc3 utf-8");
}

TEST_CASE("output: JSON stays JSON whatever its texts hold") {
  for (const std::string& text : {std::string("\x1b[2J"), std::string("\xc2\x9b"), std::string("a\nb\x7f"),
                                  std::string("\xe2\x80\xae"), std::string("\xf3\xa0\x81\x81"), std::string("\"\\/")}) {
    const nlohmann::ordered_json json = {{"text", text}};
    const std::string written = to_text(json);
    CHECK(nlohmann::ordered_json::parse(written) == json);
    CHECK(visible(written) == written);
  }
  CHECK(to_text({{"text", "bad \xff"}}) == "{\n  \"text\": \"bad \xef\xbf\xbd\"\n}");
}

TEST_CASE("output: columns are as wide as their widest cell, and lines end without blanks") {
  CHECK(columns({{"a", "bbb", "c"}, {"ää", "b"}}, "  ") == "  a   bbb  c\n  ää  b\n");
  CHECK(columns({}, "  ") == "");
}

TEST_CASE("output: numbers are short, grouped and without a locale") {
  CHECK(grouped(7) == "7");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(short_number(0.56789) == "0.5679");
  CHECK(short_number(123456.7) == "123457");
  CHECK(short_number(1e-9) == "1e-09");
}

}  // namespace lanewise
