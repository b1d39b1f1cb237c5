// Files that are there whole or not at all.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lanewise {

class OutputFile;

// Writes the pieces, one after the other, to `path`, replacing what was there: to `path`.tmp, then fsync, rename, fsync
// of the folder. Throws Error(kCheckpoint) naming the path and the system's reason; `path` then is as it was before.
void write_atomically(const std::string& path, std::span<const std::string_view> pieces);
// The same for a file that `write` writes.
void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& write);

// Returns when what was made, renamed or removed in a folder is on the disk. Throws Error(kCheckpoint).
void sync_folder(const std::string& folder);

}  // namespace lanewise
