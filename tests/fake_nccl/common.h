// What all parts of the fake NCCL use: lines of text, the names of results, random bits.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <locale>
#include <sstream>
#include <string>

namespace fake_nccl {

constexpr int kVersion = NCCL_VERSION_CODE;
static_assert(kVersion == 22809);

constexpr const char* kResults[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                    "ncclRemoteError",   "ncclInProgress"};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return out.str();
}

// Lengthens "a, b" by one.
template <class Item>
void list(std::string& items, const Item& item) {
  items += text(items.empty() ? "" : ", ", item);
}

inline std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace fake_nccl
