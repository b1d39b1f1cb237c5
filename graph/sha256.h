// SHA-256, for digests of plans and files.
#pragma once

#include <string>
#include <string_view>

namespace lanewise {

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace lanewise
