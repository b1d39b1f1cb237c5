// The safetensors writer.
#include "runtime/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "graph/error.h"
#include "runtime/atomic_file.h"

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
    default:
      throw Error(Exit::kInternal, fmt::format("{} has a dtype that is not written", named.name));
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  // Wider ones first, so that every tensor begins on a multiple of its element's size.
  std::vector<NamedTensor> ordered(tensors.begin(), tensors.end());
  std::ranges::stable_sort(ordered, std::greater(), [](const NamedTensor& t) { return t.tensor.element_size(); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::string_view> pieces(2);  // length and header come last, when they are known
  std::size_t offset = 0;
  for (NamedTensor& named : ordered) {
    if (header.contains(named.name)) throw Error(Exit::kInternal, fmt::format("two tensors are called {}", named.name));
    named.tensor = named.tensor.contiguous();
    const std::size_t bytes = named.tensor.nbytes();
    header[named.name] = {{"dtype", dtype_name(named)},
                          {"shape", named.tensor.sizes().vec()},
                          {"data_offsets", {offset, offset + bytes}}};
    pieces.emplace_back(static_cast<const char*>(named.tensor.const_data_ptr()), bytes);
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  pieces[0] = {reinterpret_cast<const char*>(&length), sizeof length};
  pieces[1] = text;
  write_atomically(path, pieces);
}

}  // namespace lanewise
