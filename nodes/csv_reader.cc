#include "nodes/csv_reader.h"

#include <csv.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "graph/error.h"
#include "graph/text.h"

namespace lanewise {
namespace {

constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t kLongestRow = 1 << 20;

// Where the first line ends; the text's size where none does. std::string_view has this too, and takes five times as
// long.
std::size_t line_end(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if(text, [](char c) { return c == '\r' || c == '\n'; }) -
                                  text.begin());
}

// libcsv is handed the file in pieces that end with a line end or a block, so that at most one row ends in a piece and
// the line that a row begins on is known.
class Reader {
 public:
  Reader(const std::string& path, char separator, const std::function<bool(const CsvRow&)>& take)
      : path_(path), take_(take) {
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_delim(&parser_, static_cast<unsigned char>(separator));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { csv_free(&parser_); }

  void read() {
    std::error_code none;
    if (std::filesystem::exists(path_, none) && !std::filesystem::is_regular_file(path_, none)) {
      throw Error(Exit::kData, fmt::format("{} is no regular file", escaped(path_)));
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"), std::fclose);
    if (file == nullptr)
      throw Error(Exit::kData, fmt::format("cannot read {}: {}", escaped(path_), std::strerror(errno)));
    std::vector<char> block(kBlock);
    bool first = true;
    while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get())) {
      std::string_view text(block.data(), n);
      if (first && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
      first = false;
      while (!text.empty()) {
        const std::string_view piece = text.substr(0, line_end(text) + 1);
        text.remove_prefix(piece.size());
        if (!feed(piece)) return;
      }
    }
    if (std::ferror(file.get()))
      throw Error(Exit::kData, fmt::format("cannot read {}: {}", escaped(path_), std::strerror(errno)));
    if (csv_fini(&parser_, on_field, on_row, this) != 0) fail("a quoted field has no end");
    deliver();
  }

 private:
  // False: no more rows are wanted.
  bool feed(std::string_view piece) {
    const char last = piece.back();
    const std::string_view text = piece.substr(0, line_end(piece));
    if (!text.empty()) {
      line_ += carriage_returns_;  // those had no line feed behind them: each ended a line
      carriage_returns_ = 0;
    }
    if (!in_row_ && text.find_first_not_of(" \t") != text.npos) {
      in_row_ = true;
      row_.line = line_;
      row_bytes_ = 0;
    }
    if (in_row_) row_bytes_ += piece.size();
    if (row_bytes_ > kLongestRow) fail("a row is longer than 1 MiB; is a quote missing?");
    if (csv_parse(&parser_, piece.data(), piece.size(), on_field, on_row, this) != piece.size()) {
      fail(csv_error(&parser_) == CSV_EPARSE ? "a quote inside a field must be doubled, and the field in quotes"
                                             : csv_strerror(csv_error(&parser_)));
    }
    if (last == '\r') ++carriage_returns_;
    if (last == '\n') {
      ++line_;
      carriage_returns_ = 0;
    }
    return deliver();
  }

  bool deliver() {
    if (!row_ended_) return true;
    row_ended_ = in_row_ = false;
    row_bytes_ = 0;
    const bool more = take_(row_);
    row_.fields.clear();
    return more;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Exit::kData, fmt::format("{}:{}: {}", escaped(path_), in_row_ ? row_.line : line_, what));
  }

  static void on_field(void* text, std::size_t size, void* self) {
    static_cast<Reader*>(self)->row_.fields.emplace_back(static_cast<const char*>(text), size);
  }
  static void on_row(int, void* self) { static_cast<Reader*>(self)->row_ended_ = true; }

  const std::string& path_;
  const std::function<bool(const CsvRow&)>& take_;
  csv_parser parser_;
  CsvRow row_;
  std::int64_t line_ = 1;              // of the piece being fed
  std::int64_t carriage_returns_ = 0;  // since the last text or line feed
  std::size_t row_bytes_ = 0;
  bool in_row_ = false, row_ended_ = false;
};

}  // namespace

void read_csv(const std::string& path, char separator, const std::function<bool(const CsvRow&)>& take) {
  Reader(path, separator, take).read();
}

CsvRow read_csv_header(const std::string& path, char separator) {
  CsvRow header;
  read_csv(path, separator, [&header](const CsvRow& row) {
    header = row;
    return false;
  });
  if (header.fields.empty())
    throw Error(Exit::kData, fmt::format("{} is empty; its first row must name the columns", escaped(path)));
  return header;
}

}  // namespace lanewise
