#include "graph/document.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace lanewise {
namespace {

// The problems of a text, one a line: "f:1:2 rule".
std::string problems_of(const std::string& text) {
  std::vector<Problem> problems;
  const Document document(text, "f", problems);
  std::string out;
  for (const Problem& problem : problems) out += fmt::format("{} {}\n", problem.place.at, problem.rule);
  CHECK(document.complete() == (problems.empty() || out.find("given twice") != std::string::npos));
  return out;
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST_CASE("document: every value has the position of its key or its own, behind comments and wide characters") {
  const std::string text =
      "// one, \"two\": {\n"
      "{ \"a\": 1,         \"é\\\"\": [10, -2.5e3, // x\n"
      "  true,\r\n"
      "  {\"b\": null}, \"s\\\\\" , [ ] ],\n"
      "\"öö\": {\"x/y\": {}, \"z~\": \"\"}, \"last\": false }";
  std::vector<Problem> problems;
  const Document document(text, "f", problems);
  REQUIRE(problems.empty());
  std::string places;
  for (const char* pointer : {"", "/a", "/é\"", "/é\"/0", "/é\"/1", "/é\"/2", "/é\"/3", "/é\"/3/b", "/é\"/4", "/é\"/5",
                              "/öö", "/öö/x~1y", "/öö/z~0", "/last", "/none", "/é\"/6", "/é\"/3/none/deeper"}) {
    places += document.place(pointer).at + " " + document.place(pointer).pointer + "\n";
  }
  CHECK(places ==
        "f:2:1 \n"
        "f:2:3 /a\n"
        "f:2:19 /é\"\n"
        "f:2:27 /é\"/0\n"
        "f:2:31 /é\"/1\n"
        "f:3:3 /é\"/2\n"
        "f:4:3 /é\"/3\n"
        "f:4:4 /é\"/3/b\n"
        "f:4:16 /é\"/4\n"
        "f:4:24 /é\"/5\n"
        "f:5:1 /öö\n"
        "f:5:8 /öö/x~1y\n"
        "f:5:19 /öö/z~0\n"
        "f:5:30 /last\n"
        "f:2:1 /none\n"
        "f:2:19 /é\"/6\n"
        "f:4:3 /é\"/3/none/deeper\n");
  CHECK(document.root()["é\""][1] == -2500.0);
}

TEST_CASE("document: only // begins a comment") {
  const std::string rule = "a comment begins with // and ends with its line; /* */ is not read";
  CHECK(problems_of("{ \"a\": /* b */ 1 }\n") == "f:1:8 " + rule + "\n");
  CHECK(problems_of("{}\n/* b */ // c\n/**/") == "f:2:1 " + rule + "\nf:3:1 " + rule + "\n");
}

TEST_CASE("document: a pointer's steps survive being written and read") {
  for (const std::string key : {"a", "x/y", "~", "~1", "/", ""}) {
    CHECK(pointer_steps(pointer_to(key)) == std::vector<std::string>{key});
  }
}

TEST_CASE("document: what is no JSON is told with its position and what was expected") {
  CHECK(problems_of("") == "f:1:1 this is not JSON: there is nothing in it\n");
  CHECK(problems_of("{\n  \"a\" 1}") ==
        "f:2:7 this is not JSON: while parsing object separator: unexpected number literal; expected ':'\n");
  CHECK(problems_of("{\"a\": 1,\n}") ==
        "f:2:1 this is not JSON: while parsing object key: unexpected '}'; expected string literal\n");
  CHECK(problems_of("[1\n 22]") ==
        "f:2:2 this is not JSON: while parsing array: unexpected number literal; expected ',' or ']'\n");
  CHECK(problems_of("{\"a\": 1\n \"bcd\": 2}") ==
        "f:2:2 this is not JSON: while parsing object: unexpected string literal; expected ',' or '}'\n");
  CHECK(problems_of("{\"a\": tru }") == "f:1:10 this is not JSON: while parsing value: invalid literal\n");
  CHECK(problems_of("{\"a\": [1, 2") ==
        "f:1:12 this is not JSON: while parsing array: unexpected end of input; expected ',' or ']'\n");
  CHECK(problems_of("{} {}") == "f:1:4 this is not JSON: while parsing value: unexpected '{'; expected end of input\n");
  CHECK(problems_of("[[], true false]") ==
        "f:1:11 this is not JSON: while parsing array: unexpected false literal; expected ',' or ']'\n");
  CHECK(problems_of("{\"a\": 1e999}") == "f:1:11 this is not JSON: number overflow parsing '1e999'\n");
  CHECK(problems_of("{\"a\": NaN}") == "f:1:7 this is not JSON: while parsing value: invalid literal\n");
  CHECK(problems_of("{\"a\": 01}") ==
        "f:1:8 this is not JSON: while parsing object: unexpected number literal; expected ',' or '}'\n");
  CHECK(problems_of("{\"a\n\": 1}") ==
        "f:1:4 this is not JSON: while parsing object key: invalid string: control character U+000A (LF) must be "
        "escaped to "
        "\\u000A or \\n; expected string literal\n");
}

TEST_CASE("document: a key given twice is told where it comes again, and reading goes on") {
  CHECK(problems_of("{\"a\": 1,\n \"b\": {\"c\": 1, \"c\": 2}, \"a\": 3}") ==
        "f:2:16 the key \"c\" is given twice\nf:2:25 the key \"a\" is given twice\n");
}

TEST_CASE("document: nesting is allowed to 64 levels and refused beyond, at any depth") {
  CHECK(problems_of(repeated("[", 64) + repeated("]", 64)) == "");
  CHECK(problems_of(repeated("[", 65) + repeated("]", 65)) == "f:1:65 nested deeper than 64\n");
  CHECK(problems_of(repeated("[", 100'000) + repeated("]", 100'000)) == "f:1:65 nested deeper than 64\n");
  CHECK(problems_of(repeated("{\"a\":", 100'000) + "1" + repeated("}", 100'000)) == "f:1:321 nested deeper than 64\n");
}

TEST_CASE("document: bytes that are no text are refused") {
  CHECK(problems_of("{\"a\": \"\xff\"}") == "f:1:8 this byte is not UTF-8; save the file as UTF-8\n");
  CHECK(problems_of("{} // \xc3(") == "f:1:7 this byte is not UTF-8; save the file as UTF-8\n");
  CHECK(problems_of("{\"a\": \"\xed\xa0\x80\"}") == "f:1:8 this byte is not UTF-8; save the file as UTF-8\n");
  CHECK(problems_of(std::string("{}\0{", 4)) == "f:1:3 a zero byte; a pipeline file is text\n");
  CHECK(problems_of("\xef\xbb\xbf{}") == "");
}

TEST_CASE("document: 16 MiB are looked into, one byte more is refused unread") {
  const std::string text = "]" + std::string(Document::kMaxBytes - 1, ' ');
  CHECK(problems_of(text).starts_with("f:1:1 this is not JSON: while parsing value: unexpected ']'"));
  CHECK(problems_of(text + " ") == "f is larger than 16 MiB, the most a pipeline file may be\n");
}

}  // namespace
}  // namespace lanewise
