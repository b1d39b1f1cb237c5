// Bytes as text, in base64 (RFC 4648).
#pragma once

#include <string>
#include <string_view>

namespace lanewise {

std::string to_base64(std::string_view bytes);
// Throws Error(kCheckpoint) where the text is none.
std::string from_base64(std::string_view text);

}  // namespace lanewise
