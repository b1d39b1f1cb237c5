// Reads a CSV file row by row: RFC 4180 by libcsv, with quotes, line breaks in quotes, blank lines skipped, any line
// end (also \r\r\n), a byte order mark, and a last line without an end. Blanks around an unquoted field are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lanewise {

struct CsvRow {
  std::int64_t line = 0;  // where the row begins: physical lines from 1
  std::vector<std::string> fields;
};

// Calls `take` with every row, the header included, until it returns false. Throws Error(kData) naming the file, and
// the line where there is one: the file cannot be read or is no regular file, quotes are malformed, a row is over 1
// MiB.
void read_csv(const std::string& path, char separator, const std::function<bool(const CsvRow&)>& take);

// The first row alone.
CsvRow read_csv_header(const std::string& path, char separator);

}  // namespace lanewise
