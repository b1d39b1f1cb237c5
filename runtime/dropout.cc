// Dropout masks by a counter.
#include "runtime/dropout.h"

#include <ATen/ATen.h>

#include <cmath>

namespace lanewise {
namespace {

// 32 random bits an element: dropped when they are below `limit`.
template <class T>
void fill_row(T* values, std::int64_t count, Random random, std::uint64_t limit, T kept) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint64_t bits = random.bits();
    values[i] = (bits & 0xffffffff) < limit ? T{0} : kept;
    if (i + 1 < count) values[i + 1] = bits >> 32 < limit ? T{0} : kept;
  }
}

}  // namespace

Dropout::Dropout(std::uint64_t seed, const StreamTable& streams) {
  for (int stream = 0; stream < streams.size(); ++stream) streams_.emplace_back(seed, "dropout", streams.name(stream));
}

at::Tensor Dropout::mask(std::span<const Tag> rows, int layer, const Shape& shape, double p,
                         at::ScalarType dtype) const {
  Shape whole = {static_cast<std::int64_t>(rows.size())};
  whole.insert(whole.end(), shape.begin(), shape.end());
  const at::Tensor mask = at::empty(whole, dtype);
  const std::int64_t count = element_count(shape);
  const auto limit = static_cast<std::uint64_t>(std::llround(p * 0x1p32));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // A counter of its own for each (seq, layer), so that they share no numbers.
    const Random random = streams_[rows[i].stream].at(rows[i].seq << 16 | static_cast<std::uint64_t>(layer));
    const std::int64_t begin = static_cast<std::int64_t>(i) * count;
    if (dtype == at::kFloat) {
      fill_row(mask.mutable_data_ptr<float>() + begin, count, random, limit, static_cast<float>(1 / (1 - p)));
    } else {
      fill_row(mask.mutable_data_ptr<double>() + begin, count, random, limit, 1 / (1 - p));
    }
  }
  return mask;
}

}  // namespace lanewise
