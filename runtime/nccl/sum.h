// What NCCL adds up at once: a round's buckets, or a part of them (runtime/devices/bucket_parts.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lanewise {

struct NcclRound {
  std::uint64_t number = 0;
  int part = 0, parts = 1;
};

struct NcclSum {
  // Elements of a buffer that are next to each other.
  struct Piece {
    std::int64_t begin = 0, count = 0;
  };
  NcclRound round;
  std::vector<void*> buffers;  // of each rank here, on its device
  std::vector<Piece> pieces;   // of each of them, the same in all ranks
  bool is_double = false;      // elements are float64, else float32
};

}  // namespace lanewise
