// A GeneratorChild is one generator process with its control socket and its log, served by an event loop: it tells what
// the process sends, and when nothing more can come.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/generators/child_process.h"
#include "runtime/generators/event_loop.h"
#include "runtime/generators/log_tail.h"
#include "runtime/generators/protocol.h"

namespace lanewise {

class GeneratorChild {
 public:
  // Called by the loop's thread. Any of them may destroy the child.
  struct Events {
    std::function<void(const MessageIn&)> message;  // may throw a ProtocolError, which comes back as `broken`
    std::function<void(const std::string& what)> broken;
    // All messages were told. Nullopt: it has closed its socket, and lives.
    std::function<void(std::optional<ChildEnd>)> gone;
    std::function<void(std::string_view line)> line;  // of its standard output or error
  };

  // In the loop's thread, as the destructor, which kills it. Throws as ChildProcess does.
  GeneratorChild(EventLoop& loop, ChildCommand command, Events events);
  ~GeneratorChild();
  GeneratorChild(const GeneratorChild&) = delete;
  GeneratorChild& operator=(const GeneratorChild&) = delete;

  pid_t id() const { return process_.id(); }
  // From any thread while the child is sure to be there. One that is gone is told by `gone`. Throws a ProtocolError
  // when it has not read what it was sent before.
  void send(MessageOut& message, int descriptor = -1) const;
  // Its last lines, or "".
  std::string last_lines();
  // Asks it to leave; from now on only `left` is called, at the latest after two seconds.
  void leave(std::function<void()> left);

 private:
  struct Socket {
    Descriptor own, other;
    static Socket make();
  };
  GeneratorChild(EventLoop& loop, ChildCommand command, Events events, Socket socket);
  void read_messages(bool all);
  std::optional<MessageIn> receive();
  void closed();
  void ended();
  void read_log(int descriptor, LogTail& log, bool all);

  EventLoop& loop_;
  Events events_;
  Descriptor control_;
  const ChildProcess process_;
  LogTail output_, errors_;
  std::unique_ptr<char[]> buffer_;
  std::optional<std::uint64_t> timer_;
  std::function<void()> left_;  // set: it is leaving
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace lanewise
