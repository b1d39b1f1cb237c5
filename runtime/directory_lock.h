// A run directory belongs to one run at a time.
#pragma once

#include <string>

namespace lanewise {

// Holds DIRECTORY/.lock while it lives, and no longer than the process; programs that the process starts do not inherit
// it. The directory must exist. Throws Error(kCommandLine), at once, when another run holds it, and Error(kCheckpoint)
// when the file cannot be locked.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace lanewise
