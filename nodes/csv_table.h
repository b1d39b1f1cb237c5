// The columns of a CSV file that a stream needs, read whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/fields.h"

namespace lanewise {

// What to read from which columns.
struct CsvColumns {
  Path path;
  std::vector<std::string> features, target;
  std::optional<std::string> time;
  std::string time_unit = "s", separator = ",";
  std::vector<std::string> missing = {"", "NA", "NaN", "nan"};
  std::optional<std::int64_t> classes;

  void fields(Fields& f);
  char separator_char() const;  // "\t" may be written as "tab"
};

// Rows of the file from 0, the header not counted. Missing values are NaN, then carried forward where it says so.
class CsvTable {
 public:
  // Throws Error(kData) with file:line and column where a row is ragged, or a value no number, no time, or no class.
  explicit CsvTable(const CsvColumns& columns);
  // The same, but a table that is in use for the same columns is shared: every pass over a stream, and an evaluation
  // beside the training, sees the same rows, whatever becomes of the file. Any thread.
  static std::shared_ptr<const CsvTable> shared(const CsvColumns& columns);

  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  std::int64_t line(std::int64_t row) const { return lines_[row]; }  // physical, from 1

  // Missing features are those of the row before; NaN before a column's first value.
  std::span<const double> features(std::int64_t row) const { return at(features_, row, columns_.features.size()); }
  // Missing targets are NaN.
  std::span<const double> target(std::int64_t row) const { return at(target_, row, columns_.target.size()); }
  // Per target column the last value that is not missing in any row up to this one; NaN before the first.
  std::span<const double> last_target(std::int64_t row) const { return at(last_target_, row, columns_.target.size()); }
  // Nanoseconds; nullopt without a time column.
  std::optional<std::int64_t> time(std::int64_t row) const {
    return times_.empty() ? std::nullopt : std::optional(times_[row]);
  }

 private:
  static std::span<const double> at(const std::vector<double>& all, std::int64_t row, std::size_t width) {
    return {all.data() + static_cast<std::size_t>(row) * width, width};
  }
  double number(const std::string& text, const std::string& column, std::int64_t line) const;
  [[noreturn]] void fail(std::int64_t line, const std::string& what) const;

  const CsvColumns columns_;
  std::vector<std::int64_t> lines_, times_;
  std::vector<double> features_, target_, last_target_;  // row by row
};

// Where `name` stands in a header; -1 when nowhere, -2 when twice.
int find_column(const std::vector<std::string>& header, const std::string& name);

}  // namespace lanewise
