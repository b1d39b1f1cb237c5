#include "graph/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "graph/error.h"

namespace lanewise {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
    throw Error(Exit::kInternal, "the SHA-256 of OpenSSL is not available");
  }
  return fmt::format("{:02x}", fmt::join(digest, digest + length, ""));
}

}  // namespace lanewise
