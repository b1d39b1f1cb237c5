#include "graph/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "graph/error.h"

namespace lanewise {
namespace {

void require(bool done) {
  if (!done) throw Error(Exit::kInternal, "the SHA-256 of OpenSSL is not available");
}

std::string hex_of(const unsigned char* digest, unsigned int length) {
  return fmt::format("{:02x}", fmt::join(digest, digest + length, ""));
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  require(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  return hex_of(digest, length);
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::add(std::string_view bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  bytes_ += bytes.size();
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
  return hex_of(digest, length);
}

}  // namespace lanewise
