#include "nodes/csv_values.h"

#include <clocale>
#include <cstdlib>
#include <limits>

#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

TEST_CASE("csv_values: numbers") {
  CHECK(parse_number("3.14") == 3.14);
  CHECK(parse_number("-1e-3") == -0.001);
  CHECK(parse_number("+2") == 2);
  CHECK(parse_number("0.1") == 0.1);
  CHECK(parse_number("5.") == 5);
  for (const char* text : {"", " ", "x", "1,5", "1 ", "inf", "nan", "0x10", "+-1", "1e999", "--1", "1.2.3"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number(text));
  }
}

TEST_CASE("csv_values: a decimal comma in the locale changes nothing") {
  const TemporaryFile folder("");
  const std::string locales = std::filesystem::path(folder.path()).parent_path().string();
  REQUIRE(std::system(("localedef -i de_DE -f UTF-8 " + locales + "/de_DE.UTF-8").c_str()) == 0);
  setenv("LOCPATH", locales.c_str(), 1);
  REQUIRE(std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr);
  REQUIRE(std::string(std::localeconv()->decimal_point) == ",");
  const auto value = parse_number("3.14"), comma = parse_number("3,14");
  const auto time = parse_time("1700000000.25", "s");
  std::setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  CHECK(value == 3.14);
  CHECK_FALSE(comma);
  CHECK(time == 1700000000250000000);
}

TEST_CASE("csv_values: times that are numbers are exact to the nanosecond") {
  CHECK(parse_time("1700000000", "s") == 1700000000000000000);
  CHECK(parse_time("1700000000.25", "s") == 1700000000250000000);
  CHECK(parse_time("1700000064", "s") == 1700000064000000000);
  CHECK(parse_time("1550083467346370", "ns") == 1550083467346370);
  CHECK(parse_time("9007199254740993", "ns") == 9007199254740993);  // 2^53 + 1
  CHECK(parse_time("1550083467346370", "us") == 1550083467346370000);
  CHECK(parse_time("1.5", "ms") == 1500000);
  CHECK(parse_time("-0.5", "s") == -500000000);
  CHECK(parse_time("1.7e9", "s") == 1700000000000000000);
  CHECK(parse_time("1.7E+09", "s") == 1700000000000000000);
  CHECK(parse_time("25e-1", "s") == 2500000000);
  CHECK(parse_time("0.1234567899", "s") == 123456789);
  CHECK(parse_time("0", "s") == 0);
  for (const char* text : {"", "x", "1e", ".", "1 s", "9300000000", "1e30", "1.2.3"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_time(text, "s"));
  }
}

TEST_CASE("csv_values: dates") {
  CHECK(parse_time("1970-01-01", "s") == 0);
  CHECK(parse_time("2013-01-01", "s") == 1356998400000000000);
  CHECK(parse_time("2013-01-01T00:01", "s") == 1356998460000000000);
  CHECK(parse_time("2013-01-01 00:00:01.5", "s") == 1356998401500000000);
  CHECK(parse_time("2013-01-01T00:00:00Z", "s") == 1356998400000000000);
  CHECK(parse_time("2013-01-01T02:00:00+02:00", "s") == 1356998400000000000);
  CHECK(parse_time("2012-12-31T19:00:00-0500", "s") == 1356998400000000000);
  CHECK(parse_time("1969-12-31T23:59:59", "s") == -1000000000);
  CHECK(parse_time("2024-02-29", "s"));
  for (const char* text :
       {"2023-02-29", "2023-13-01", "2023-1-1", "2023-01-01T", "2023-01-01T24:00", "2023-01-01T10:60", "2023-01-01x",
        "2023-01-01T10:00:00.", "2023-01-01T10:00+", "9999-01-01"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_time(text, "s"));
  }
}

TEST_CASE("csv_values: row ranges") {
  const auto read = [](const char* text) {
    const std::optional<RowRange> range = parse_rows(text);
    if (!range) return std::string("none");
    return fmt::format("{} to {}", range->begin, range->end ? fmt::format("{}", *range->end) : "the end");
  };
  CHECK(read("") == "0 to the end");
  CHECK(read("0:300") == "0 to 300");
  CHECK(read("300:") == "300 to the end");
  CHECK(read(":300") == "0 to 300");
  CHECK(read(":") == "0 to the end");
  for (const char* text : {"300", "5:5", "6:5", "-1:5", "a:b", "1:2:3", "1.5:2", " 1:2"}) CHECK(read(text) == "none");
}

}  // namespace
}  // namespace lanewise
