#include "tests/fake_nccl/signature.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "tests/fake_nccl/common.h"

namespace fake_nccl {
namespace {

// Integers wrap around, as on a device.
template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  const auto wrap = [](T x) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<std::uint64_t>(x);
    } else {
      return x;
    }
  };
  switch (op) {
    case ncclSum:
      return static_cast<T>(wrap(a) + wrap(b));
    case ncclProd:
      return static_cast<T>(wrap(a) * wrap(b));
    case ncclMax:
      return b > a ? b : a;
    default:
      return b < a ? b : a;
  }
}

template <class T>
void combine(Bytes& sum, const Bytes& more, ncclRedOp_t op) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, &sum[at], sizeof(T));
    std::memcpy(&b, &more[at], sizeof(T));
    a = combined(a, b, op);
    std::memcpy(&sum[at], &a, sizeof(T));
  }
}

constexpr Type kTypes[] = {
    {"int8", 1, nullptr},     {"uint8", 1, combine<std::uint8_t>}, {"int32", 4, combine<std::int32_t>},
    {"uint32", 4, nullptr},   {"int64", 8, combine<std::int64_t>}, {"uint64", 8, nullptr},
    {"float16", 2, nullptr},  {"float32", 4, combine<float>},      {"float64", 8, combine<double>},
    {"bfloat16", 2, nullptr}, {"float8e4m3", 1, nullptr},          {"float8e5m2", 1, nullptr}};
static_assert(std::size(kTypes) == ncclNumTypes);
constexpr const char* kOps[] = {"sum", "prod", "max", "min"};

}  // namespace

const Type& info(ncclDataType_t type) { return kTypes[type]; }

std::string Signature::str() const {
  return text(function, "(", count, " ", info(type).name, op ? text(" ", kOps[*op]) : text(" from root ", root), ")");
}

std::string difference(const Signature& a, const Signature& b) {
  if (std::strcmp(a.function, b.function) != 0) return "function";
  std::string all;
  if (a.count != b.count) list(all, "count");
  if (a.type != b.type) list(all, "datatype");
  if (a.op != b.op) list(all, "op");
  if (a.root != b.root) list(all, "root");
  return all;
}

}  // namespace fake_nccl
