// A ChildProcess is a program that lanewise has started: in a process group of its own, without lanewise's descriptors
// and signal settings, and gone when lanewise is gone, with all of its group (GroupGuard).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/generators/descriptor.h"

namespace lanewise {

struct ChildCommand {
  std::vector<std::string> arguments;  // the program first: a path, or a name that its own PATH has
  std::string folder;                  // where it runs; relative paths in `arguments` are relative to it
  std::vector<std::string> variables;  // "NAME=value", besides lanewise's own
};

// How a process ended, for a message: "has left with status 3", "was killed by signal 9 (SIGKILL; …)".
struct ChildEnd {
  bool signalled = false;
  int number = 0;  // status or signal
  bool fine() const { return !signalled && number == 0; }
  std::string text() const;
};

class ChildProcess {
 public:
  // Starts it; `inherited` is the one descriptor that it gets besides its standard ones, under that same number. It
  // dies with the thread that calls this, which therefore has to live as long. Throws Error(kGenerator) naming the
  // program where it cannot be started.
  ChildProcess(const ChildCommand& command, int inherited);
  ~ChildProcess();  // kill(), and waits
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  // Readable once the process has ended.
  int ended() const { return ended_.get(); }
  // What it writes, never blocking here; its input is empty.
  int output() const { return output_.get(); }
  int errors() const { return errors_.get(); }

  // Nullopt: it runs. Its number is not free for another process before the destructor.
  std::optional<ChildEnd> end() const;
  // Ends it and all of its process group.
  void kill() const;

 private:
  void end_group() const;

  pid_t id_ = -1;
  Descriptor ended_, output_, errors_;
};

}  // namespace lanewise
