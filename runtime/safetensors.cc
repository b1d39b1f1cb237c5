// The safetensors writer.
#include "runtime/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "graph/error.h"
#include "runtime/atomic_file.h"
#include "runtime/output_file.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

const char* dtype_name(const NamedTensor& named) {
  switch (named.tensor.scalar_type()) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kLong:
      return "I64";
    case at::kByte:
      return "U8";
    default:
      throw Error(Exit::kInternal, fmt::format("{} has a dtype that is not written", named.name));
  }
}

}  // namespace

void encode_safetensors(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata,
                        const std::function<void(std::string_view)>& sink) {
  // Wider ones first, so that every tensor begins on a multiple of its element's size.
  std::vector<NamedTensor> ordered(tensors.begin(), tensors.end());
  std::ranges::stable_sort(ordered, std::greater(), [](const NamedTensor& t) { return t.tensor.element_size(); });

  std::vector<std::string> entries;
  if (!metadata.empty()) entries.push_back("\"__metadata__\":" + nlohmann::json(metadata).dump());
  std::set<std::string_view> names = {"__metadata__"};
  std::size_t offset = 0;
  for (NamedTensor& named : ordered) {
    if (!names.insert(named.name).second) {
      throw Error(Exit::kInternal, fmt::format("two tensors are called {}", named.name));
    }
    named.tensor = named.tensor.contiguous();
    const std::size_t end = offset + named.tensor.nbytes();
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  nlohmann::json(named.name).dump(), dtype_name(named),
                                  fmt::join(named.tensor.sizes(), ","), offset, end));
    offset = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  sink({reinterpret_cast<const char*>(&length), sizeof length});
  sink(text);
  for (const NamedTensor& named : ordered) {
    sink(raw_bytes(named.tensor));
  }
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_atomically(path, [&](OutputFile& file) {
    encode_safetensors(tensors, metadata, [&](std::string_view bytes) { file.write(bytes); });
  });
}

}  // namespace lanewise
