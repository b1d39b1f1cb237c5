#include "runtime/devices/bucket_parts.h"

#include "runtime/replica.h"

namespace lanewise {

std::vector<BucketPart> bucket_parts(const BucketLayout& layout, std::int64_t element_bytes, std::int64_t part_bytes) {
  std::vector<BucketPart> parts;
  BucketPart part;
  const auto begin_behind = [&](int parameter, std::int64_t element) {
    part = {.first = parameter, .last = parameter, .begin = element, .end = element};
  };
  begin_behind(static_cast<int>(layout.offsets.size()), layout.parameters);
  while (part.first > 0) {
    part.begin = layout.offsets[--part.first];
    if (part.first == 0 || (part.end - part.begin) * element_bytes < part_bytes) continue;
    parts.push_back(part);
    begin_behind(part.first, part.begin);
  }
  part.tail = true;
  parts.push_back(part);
  return parts;
}

}  // namespace lanewise
