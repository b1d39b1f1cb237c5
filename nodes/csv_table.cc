#include "nodes/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "graph/registry.h"
#include "graph/text.h"
#include "nodes/csv_reader.h"
#include "nodes/csv_values.h"

namespace lanewise {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostClasses = 1 << 24;  // every class number is exact in float32

// Appends a row in which missing values are those of the row before.
void carry_forward(std::vector<double>& all, std::span<const double> row) {
  const std::size_t before = all.size();
  for (std::size_t c = 0; c < row.size(); ++c) {
    all.push_back(std::isnan(row[c]) && before > 0 ? all[before - row.size() + c] : row[c]);
  }
}

}  // namespace

void CsvColumns::fields(Fields& f) {
  f.add("path", &path, "the file; its first row names the columns").required();
  f.add("features", &features, "columns that make x, in this order").required();
  f.add("target", &target, "columns that make y").required();
  f.add("time", &time,
        "column with each row's time: a number, or YYYY-MM-DD[THH:MM[:SS]]; without it there is no time");
  f.add("time_unit", &time_unit, "what a time that is a number counts").one_of({"s", "ms", "us", "ns"});
  f.add("separator", &separator, "the character between two fields, or \"tab\"");
  f.add("missing", &missing, "what stands for a missing value");
  f.add("classes", &classes, "the target is a class number below this; without it, a number").between(2, kMostClasses);
}

char CsvColumns::separator_char() const { return separator == "tab" ? '\t' : separator.empty() ? ',' : separator[0]; }

int find_column(const std::vector<std::string>& header, const std::string& name) {
  const auto it = std::ranges::find(header, name);
  if (it == header.end()) return -1;
  return std::find(it + 1, header.end(), name) == header.end() ? static_cast<int>(it - header.begin()) : -2;
}

std::shared_ptr<const CsvTable> CsvTable::shared(const CsvColumns& c) {
  struct Kept {
    std::mutex mutex;  // held while the file is read: others that need it wait
    std::weak_ptr<const CsvTable> table;
  };
  static std::mutex mutex;
  const std::tuple key(c.path.text, c.features, c.target, c.time, c.time_unit, c.separator, c.missing, c.classes);
  static std::map<std::remove_const_t<decltype(key)>, Kept> all;
  std::unique_lock lock(mutex);
  Kept& kept = all[key];
  lock.unlock();
  const std::lock_guard reading(kept.mutex);
  std::shared_ptr<const CsvTable> table = kept.table.lock();
  if (!table) kept.table = table = std::make_shared<const CsvTable>(c);
  return table;
}

CsvTable::CsvTable(const CsvColumns& columns) : columns_(columns) {
  std::vector<int> features, target;
  int time = -1;
  std::size_t width = 0;
  std::vector<double> row_features(columns.features.size()), row_target(columns.target.size());
  const auto locate = [&](const CsvRow& header, const std::string& name) {
    const int at = find_column(header.fields, name);
    if (at == -1)
      fail(header.line, fmt::format("there is no column {}{}", in_quotes(name), did_you_mean(name, header.fields)));
    if (at == -2) fail(header.line, fmt::format("there are two columns {}", in_quotes(name)));
    return at;
  };
  read_csv(columns.path.text, columns.separator_char(), [&](const CsvRow& row) {
    if (width == 0) {
      width = row.fields.size();
      for (const std::string& name : columns.features) features.push_back(locate(row, name));
      for (const std::string& name : columns.target) target.push_back(locate(row, name));
      if (columns.time) time = locate(row, *columns.time);
      return true;
    }
    if (row.fields.size() != width) {
      fail(row.line, fmt::format("{} fields where the header has {}", row.fields.size(), width));
    }
    for (std::size_t i = 0; i < features.size(); ++i) {
      row_features[i] = number(row.fields[features[i]], columns.features[i], row.line);
    }
    for (std::size_t i = 0; i < target.size(); ++i) {
      const double value = row_target[i] = number(row.fields[target[i]], columns.target[i], row.line);
      if (columns.classes && !std::isnan(value) &&
          (value != std::floor(value) || value < 0 || value >= static_cast<double>(*columns.classes))) {
        fail(row.line, fmt::format("column {}: {} is no class number below {}", in_quotes(columns.target[i]),
                                   in_quotes(row.fields[target[i]]), *columns.classes));
      }
    }
    if (columns.time) {
      const std::optional<std::int64_t> at = parse_time(row.fields[time], columns.time_unit);
      if (!at) {
        fail(row.line, fmt::format("column {}: {} is no time", in_quotes(*columns.time), in_quotes(row.fields[time])));
      }
      times_.push_back(*at);
    }
    lines_.push_back(row.line);
    carry_forward(features_, row_features);
    target_.insert(target_.end(), row_target.begin(), row_target.end());
    carry_forward(last_target_, row_target);
    return true;
  });
  if (width == 0)
    throw Error(Exit::kData,
                fmt::format("{} is empty; its first row must name the columns", escaped(columns.path.text)));
}

double CsvTable::number(const std::string& text, const std::string& column, std::int64_t line) const {
  if (std::ranges::find(columns_.missing, text) != columns_.missing.end()) return kMissing;
  if (const std::optional<double> value = parse_number(text)) return *value;
  fail(line, fmt::format("column {}: {} is no number; is it to be listed in \"missing\"?", in_quotes(column),
                         in_quotes(text)));
}

void CsvTable::fail(std::int64_t line, const std::string& what) const {
  throw Error(Exit::kData, fmt::format("{}:{}: {}", escaped(columns_.path.text), line, what));
}

}  // namespace lanewise
