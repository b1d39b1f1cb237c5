// Opens shared libraries that may be damaged.
#pragma once

#include <string>

namespace lanewise {

// As dlopen() with `flags`. Throws Error(kDevice) saying why it does not open; one whose end is missing, which would
// end the process when it is touched there, is refused by its headers.
void* open_library(const std::string& path, int flags);

}  // namespace lanewise
