// Files that are there whole or not at all.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lanewise {

// Writes the pieces, one after the other, to `path`, replacing what was there: to `path`.tmp, then fsync, rename, fsync of the
// folder. Throws Error(kCheckpoint) naming the path and the system's reason; `path` then is as it was before.
void write_atomically(const std::string& path, std::span<const std::string_view> pieces);

}  // namespace lanewise
