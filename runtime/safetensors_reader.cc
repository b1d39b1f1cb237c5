// The safetensors reader: nothing is believed before it is checked.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "graph/error.h"
#include "graph/text.h"
#include "runtime/input_file.h"
#include "runtime/safetensors.h"
#include "runtime/strict_json.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;  // as in the library of those who made the format

struct Dtype {
  const char* name;
  at::ScalarType type;
};
constexpr std::array<Dtype, 9> kDtypes = {{{"F64", at::kDouble},
                                           {"F32", at::kFloat},
                                           {"F16", at::kHalf},
                                           {"BF16", at::kBFloat16},
                                           {"I64", at::kLong},
                                           {"I32", at::kInt},
                                           {"I16", at::kShort},
                                           {"I8", at::kChar},
                                           {"U8", at::kByte}}};

// One tensor as the header tells it.
struct Entry {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // of its bytes, within the data
};

class Header {
 public:
  Header(const std::string& path, std::uint64_t data) : path_(path), data_(data) {}

  std::map<std::string, std::string> metadata(const Json& value) const {
    std::map<std::string, std::string> read;
    if (!value.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse(fmt::format("__metadata__: the value of {} is not a string", in_quotes(key)));
      read[key] = text;
    }
    return read;
  }

  Entry entry(const std::string& name, const Json& value) const {
    Entry entry{.name = name};
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      refuse(name, "is not an object of dtype, shape and data_offsets");
    }
    const Json& dtype = value["dtype"];
    const auto known = std::ranges::find_if(kDtypes, [&](const Dtype& d) { return dtype == d.name; });
    if (known == kDtypes.end()) refuse(name, fmt::format("dtype {} is not one that is read here", shown(dtype)));
    entry.type = known->type;

    // The product of the sizes that are not 0: it bounds the strides too.
    std::uint64_t product = c10::elementSize(entry.type);
    bool empty = false;
    if (!value["shape"].is_array()) refuse(name, "shape is not a list");
    for (const Json& size : value["shape"]) {
      constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
      const auto n = whole(size);
      if (!n) refuse(name, fmt::format("shape has {} where a size belongs", shown(size)));
      if (*n > kMost / product) refuse(name, "shape has more elements than can be counted");
      if (*n == 0) empty = true;
      if (*n > 0) product *= *n;
      entry.shape.push_back(static_cast<std::int64_t>(*n));
    }
    const std::uint64_t bytes = empty ? 0 : product;

    const Json& offsets = value["data_offsets"];
    const auto begin = offsets.is_array() && offsets.size() == 2 ? whole(offsets[0]) : std::nullopt;
    const auto end = begin ? whole(offsets[1]) : std::nullopt;
    if (!end) refuse(name, "data_offsets is not a list of two byte positions");
    if (*begin > *end) refuse(name, fmt::format("its bytes end at {}, before they begin at {}", *end, *begin));
    if (*end > data_) refuse(name, fmt::format("its bytes end at {}, but there are {} bytes of data", *end, data_));
    if (*end - *begin != bytes) {
      refuse(name, fmt::format("has {} bytes where {} [{}] takes {}", *end - *begin, known->name,
                               fmt::join(entry.shape, ", "), bytes));
    }
    entry.begin = *begin;
    entry.end = *end;
    return entry;
  }

  // Requires: sorted by begin and end.
  void check_cover(const std::vector<Entry>& entries) const {
    std::uint64_t covered = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < covered) {
        refuse(entry.name, fmt::format("its bytes begin at {}, inside another tensor's", entry.begin));
      }
      if (entry.begin > covered) refuse(fmt::format("bytes {} to {} belong to no tensor", covered, entry.begin));
      covered = entry.end;
    }
    if (covered < data_) refuse(fmt::format("bytes {} to {} belong to no tensor", covered, data_));
  }

  [[noreturn]] void refuse(const std::string& rule) const {
    throw Error(Exit::kCheckpoint, fmt::format("{}: {}", path_, rule));
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& rule) const {
    refuse(fmt::format("tensor {}: {}", in_quotes(name), rule));
  }
  static std::optional<std::uint64_t> whole(const Json& value) {
    return value.is_number_unsigned() ? std::optional(value.get<std::uint64_t>()) : std::nullopt;
  }

  const std::string& path_;
  const std::uint64_t data_;  // bytes behind the header
};

}  // namespace

const at::Tensor* SafeTensors::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &found->tensor;
}

SafeTensors read_safetensors(const std::string& path) {
  const InputFile file(path);
  const auto refuse = [&](const std::string& rule) {
    throw Error(Exit::kCheckpoint, fmt::format("{}: {}", path, rule));
  };
  std::uint64_t length = 0;
  if (file.size() < sizeof length) {
    refuse(fmt::format("has {} bytes, too few for a safetensors file", file.size()));
  }
  file.read(0, &length, sizeof length);
  if (length > kMaxHeader) {
    refuse(fmt::format("a header of {} bytes is longer than the {} it may be", length, kMaxHeader));
  }
  if (length > file.size() - sizeof length) {
    refuse(fmt::format("the header of {} bytes does not fit into a file of {} bytes", length, file.size()));
  }
  std::string text(length, '\0');
  file.read(sizeof length, text.data(), text.size());
  const std::uint64_t start = sizeof length + length;

  SafeTensors result;
  std::vector<Entry> entries;
  const Header header(path, file.size() - start);
  const Json read = parse_strict(text, path + ": the header");
  for (const auto& [name, value] : read.items()) {
    if (name == "__metadata__") {
      result.metadata = header.metadata(value);
    } else {
      entries.push_back(header.entry(name, value));
    }
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  header.check_cover(entries);

  for (Entry& entry : entries) {
    at::Tensor tensor = at::empty(entry.shape, entry.type);
    file.read(start + entry.begin, tensor.mutable_data_ptr(), entry.end - entry.begin);
    result.tensors.push_back({std::move(entry.name), std::move(tensor)});
  }
  return result;
}

}  // namespace lanewise
