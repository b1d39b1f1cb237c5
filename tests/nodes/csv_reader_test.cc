#include "nodes/csv_reader.h"

#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

// Each row as "LINE: field|field".
Lines rows_of(const TemporaryFile& file, char separator = ',') {
  Lines lines;
  read_csv(file.path(), separator, [&lines](const CsvRow& row) {
    lines.push_back(fmt::format("{}: {}", row.line, fmt::join(row.fields, "|")));
    return true;
  });
  return lines;
}

Lines rows_of(const std::string& content, char separator = ',') { return rows_of(TemporaryFile(content), separator); }

std::string error_in(const std::string& content) {
  const TemporaryFile file(content);
  return file.masked(error_of([&] { rows_of(file); }));
}

TEST_CASE("csv_reader: CRLF, a line break in quotes, a blank line, and no end of line") {
  CHECK(rows_of("t,name,x\r\n0,\"a\r\nb\",1.5\r\n\r\n1,c,2.5") ==
        Lines{"1: t|name|x", "2: 0|a\r\nb|1.5", "5: 1|c|2.5"});
}

TEST_CASE("csv_reader: other line ends") {
  CHECK(rows_of("a,b\r\r\n1,2\r\r\n3,4\r\r\n") == Lines{"1: a|b", "2: 1|2", "3: 3|4"});
  CHECK(rows_of("a\n\n\nb\n") == Lines{"1: a", "4: b"});
  CHECK(rows_of("a\rb\r\rc") == Lines{"1: a", "2: b", "4: c"});
}

TEST_CASE("csv_reader: doubled quotes, empty fields, blanks, a byte order mark") {
  CHECK(rows_of("a,\"one \"\"two\"\" three\"\n") == Lines{"1: a|one \"two\" three"});
  CHECK(rows_of(",,\n\"\",x,\n") == Lines{"1: ||", "2: |x|"});
  CHECK(rows_of(" a , b\n   \n\" c \",d\n") == Lines{"1: a|b", "3:  c |d"});
  CHECK(rows_of("\xEF\xBB\xBF"
                "a,b\n") == Lines{"1: a|b"});
}

TEST_CASE("csv_reader: another separator, a tab among them") {
  CHECK(rows_of("a;b,c\n", ';') == Lines{"1: a|b,c"});
  CHECK(rows_of("a\tb\t\tc\n", '\t') == Lines{"1: a|b||c"});
}

TEST_CASE("csv_reader: rows across the blocks that are read") {
  std::string content;
  Lines expected;
  for (int i = 0; i < 20000; ++i) {
    content += fmt::format("{},\"x\ny\",{}\r\n", i, i * i);
    expected.push_back(fmt::format("{}: {}|x\ny|{}", 2 * i + 1, i, i * i));
  }
  CHECK(rows_of(content) == expected);
}

TEST_CASE("csv_reader: stops when no more rows are wanted, before what is wrong further on") {
  const TemporaryFile file("a,b\n1,\"x\"y\n");
  CHECK(read_csv_header(file.path(), ',').fields == Lines{"a", "b"});
}

TEST_CASE("csv_reader: what is wrong, with file and line") {
  CHECK(error_in("a\n\n\"b\" c\n") == "4: FILE:3: a quote inside a field must be doubled, and the field in quotes");
  CHECK(error_in("a\n5\" pipe\n") == "4: FILE:2: a quote inside a field must be doubled, and the field in quotes");
  CHECK(error_in("a\nb\n\"c\nd\n") == "4: FILE:3: a quoted field has no end");
  CHECK(error_in("a\n\"" + std::string(1 << 21, 'x')) == "4: FILE:2: a row is longer than 1 MiB; is a quote missing?");
  CHECK(error_of([] { read_csv_header("/nowhere/x.csv", ','); }) ==
        "4: cannot read /nowhere/x.csv: No such file or directory");
  CHECK(error_of([] { read_csv_header("/tmp", ','); }) == "4: /tmp is no regular file");
  const TemporaryFile empty("\n\n");
  CHECK(empty.masked(error_of([&] { read_csv_header(empty.path(), ','); })) ==
        "4: FILE is empty; its first row must name the columns");
}

}  // namespace
}  // namespace lanewise
