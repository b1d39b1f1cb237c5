// SHA-256, for digests of plans and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace lanewise {

constexpr std::size_t kSha256Digits = 64;

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

// The digest of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  // As above, of all that was added. Call once, last.
  std::string hex();
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lanewise
