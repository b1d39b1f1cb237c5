// Parts of a bucket that are reduced one after the other, so that large models' gradients are on their way between GPUs
// while the backward computes the others.
//
//   bucket   [ p0 | p1 | p2 | p3 | p4 | tail ]
//   parts    [   2   |   1   |   0    |  2   ]     the last parameters first, as a backward completes them
//
// They follow from the layout and a size alone, so that all ranks have the same, in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lanewise {

struct BucketLayout;

constexpr std::int64_t kPartBytes = 25 << 20;  // of gradients in a part, at least; the last may have less

struct BucketPart {
  int first = 0, last = 0;          // parameters [first, last)
  std::int64_t begin = 0, end = 0;  // elements of theirs in the bucket, [begin, end)
  bool tail = false;                // and the bucket's tail: the last part has it
};

// Its gradients; a view.
inline at::Tensor gradients_of(const BucketPart& part, const at::Tensor& bucket) {
  return bucket.narrow(0, part.begin, part.end - part.begin);
}

// `element_bytes`: of a gradient's element. A model that is smaller than `part_bytes` has one part.
std::vector<BucketPart> bucket_parts(const BucketLayout& layout, std::int64_t element_bytes, std::int64_t part_bytes);

}  // namespace lanewise
