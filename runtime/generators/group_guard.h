// The GroupGuard ends what generators leave behind when lanewise is killed: a signal of the system ends the generators
// themselves then, but not what they have started. It is a shell that waits for the end of a pipe, of which lanewise
// has the other end, and kills the process groups that it was told of. One a process, started with the first group.
#pragma once

#include <sys/types.h>

#include "runtime/generators/descriptor.h"

namespace lanewise {

class GroupGuard {
 public:
  // The one of this process. Throws Error(kGenerator) where it cannot be started.
  static GroupGuard& instance();

  // From any thread. Where the guard itself was killed, groups are no longer ended by it.
  void add(pid_t group) const { tell('+', group); }
  // While the group's number cannot be another's yet.
  void remove(pid_t group) const { tell('-', group); }

  pid_t id() const { return id_; }

 private:
  GroupGuard();
  ~GroupGuard();  // the guard kills what it still knows of, and is gone
  void tell(char sign, pid_t group) const;

  pid_t id_ = -1;
  Descriptor pipe_;
};

}  // namespace lanewise
