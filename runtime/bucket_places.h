// Where everything lies in a bucket's tail, in elements: plain numbers, which code for GPUs reads, too.
#pragma once

#include <cstdint>

namespace lanewise {

// Per-lane flags at the end of a bucket's tail.
enum class Flag { kEnded, kCut, kNonFinite, kStop, kCount };

struct BucketPlaces {
  std::int64_t parameters = 0;  // padded length of the parameter part; the tail starts here
  int streams = 0, lanes = 0;

  constexpr std::int64_t loss_at(int stream) const { return parameters + 2 * stream; }        // Σ w·r
  constexpr std::int64_t weight_at(int stream) const { return parameters + 2 * stream + 1; }  // Σ w
  constexpr std::int64_t flag_at(int lane, Flag flag) const {
    return parameters + 2 * streams + lane * static_cast<int>(Flag::kCount) + static_cast<int>(flag);
  }
  constexpr std::int64_t size() const { return flag_at(lanes, Flag{0}); }  // of the whole bucket
  constexpr std::int64_t tail() const { return size() - parameters; }      // of its tail
};

}  // namespace lanewise
