// What a collective computes: its arguments, which the ranks of a clique must agree on, and the arithmetic of its type.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fake_nccl {

using Bytes = std::vector<unsigned char>;

struct Type {
  const char* name;
  std::size_t size;
  // sum[i] = op(sum[i], more[i]), in the type's own precision; null where the fake lacks it.
  void (*combine)(Bytes& sum, const Bytes& more, ncclRedOp_t op);
};

// Requires: 0 <= type < ncclNumTypes.
const Type& info(ncclDataType_t type);

struct Signature {
  const char* function = "";
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  std::optional<ncclRedOp_t> op;  // none: a broadcast
  int root = -1;

  std::size_t bytes() const { return count * info(type).size; }
  std::string str() const;  // "ncclAllReduce(4 float32 sum)"
};

// What differs: "count, datatype"; "" when nothing does.
std::string difference(const Signature& a, const Signature& b);

}  // namespace fake_nccl
