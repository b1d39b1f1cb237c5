#include "runtime/generators/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace lanewise {
namespace {

constexpr std::chrono::seconds kFarewell{2}, kClosing{1};
constexpr int kMessagesATime = 64;             // then others have their turn
constexpr std::size_t kLogBytes = 65536;       // read at a time
constexpr std::size_t kMostDescriptors = 253;  // that the system lets one message carry

std::string control_variable(int descriptor) { return fmt::format("LANEWISE_CONTROL={}", descriptor); }

// Descriptors that came along are not wanted.
void close_descriptors(msghdr& header) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(at) + i * sizeof(int), sizeof descriptor);
      ::close(descriptor);
    }
  }
}

}  // namespace

GeneratorChild::Socket GeneratorChild::Socket::make() {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Error(Exit::kGenerator, "cannot make a socket: " + std::system_category().message(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

GeneratorChild::GeneratorChild(EventLoop& loop, ChildCommand command, Events events)
    : GeneratorChild(loop, std::move(command), std::move(events), Socket::make()) {}

GeneratorChild::GeneratorChild(EventLoop& loop, ChildCommand command, Events events, Socket socket)
    : loop_(loop),
      events_(std::move(events)),
      control_(std::move(socket.own)),
      process_((command.variables.push_back(control_variable(socket.other.get())), command), socket.other.get()),
      output_(events_.line),
      errors_(events_.line),
      buffer_(new char[kMostFromChild]) {
  loop_.watch(control_.get(), [this] { read_messages(/*all=*/false); });
  loop_.watch(process_.ended(), [this] { ended(); });
  loop_.watch(process_.output(), [this] { read_log(process_.output(), output_, /*all=*/false); });
  loop_.watch(process_.errors(), [this] { read_log(process_.errors(), errors_, /*all=*/false); });
}

GeneratorChild::~GeneratorChild() {
  *here_ = false;
  if (timer_) loop_.cancel(*timer_);
  for (const int descriptor : {control_.get(), process_.ended(), process_.output(), process_.errors()})
    loop_.forget(descriptor);
}

void GeneratorChild::send(MessageOut& message, int descriptor) const {
  const std::string_view bytes = message.bytes();
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  if (descriptor >= 0) {
    header.msg_control = space.data();
    header.msg_controllen = space.size();
    cmsghdr* const at = CMSG_FIRSTHDR(&header);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(at), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(control_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return;
  if (errno == EAGAIN || errno == EWOULDBLOCK) throw ProtocolError("order", "it does not read what it is sent");
  // That it is gone is told where its messages end.
  if (errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN)
    throw ProtocolError("order", "it cannot be sent anything: " + std::system_category().message(errno));
}

std::optional<MessageIn> GeneratorChild::receive() {
  iovec part{buffer_.get(), kMostFromChild};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  header.msg_controllen = space.size();
  ssize_t size = -1;
  do {
    size = ::recvmsg(control_.get(), &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (size >= 0) close_descriptors(header);
  if (size <= 0) {  // its end, or ECONNRESET
    closed();
    return std::nullopt;
  }
  return parse_message({buffer_.get(), kMostFromChild}, static_cast<std::size_t>(size));
}

void GeneratorChild::read_messages(bool all) {
  const std::shared_ptr<bool> here = here_;
  try {
    for (int i = 0; all || i < kMessagesATime; ++i) {
      if (!control_) return;
      const std::optional<MessageIn> message = receive();
      if (!message) return;
      events_.message(*message);
      if (!*here || left_) return;
    }
  } catch (const ProtocolError& error) {
    if (*here) events_.broken(error.what());
  }
}

// The process ends in a moment, as a rule, and that says more.
void GeneratorChild::closed() {
  loop_.forget(control_.get());
  if (timer_) return;
  timer_ = loop_.at(EventLoop::Clock::now() + kClosing, [this] {
    timer_.reset();
    events_.gone(std::nullopt);
  });
}

void GeneratorChild::ended() {
  const std::shared_ptr<bool> here = here_;
  loop_.forget(process_.ended());
  if (left_) return std::exchange(left_, {})();
  read_messages(/*all=*/true);
  if (!*here || left_) return;
  events_.gone(process_.end());
}

void GeneratorChild::read_log(int descriptor, LogTail& log, bool all) {
  std::array<char, kLogBytes> bytes;
  ssize_t size = 0;
  std::size_t total = 0;
  while ((size = ::read(descriptor, bytes.data(), bytes.size())) > 0) {
    log.take({bytes.data(), static_cast<std::size_t>(size)});
    total += static_cast<std::size_t>(size);
    if (!all || total > 16 * kLogBytes) return;
  }
  if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    log.finish();
    loop_.forget(descriptor);
  }
}

std::string GeneratorChild::last_lines() {
  read_log(process_.output(), output_, /*all=*/true);
  read_log(process_.errors(), errors_, /*all=*/true);
  output_.finish();
  errors_.finish();
  const std::string errors = errors_.end();
  return errors.empty() ? output_.end() : errors;
}

void GeneratorChild::leave(std::function<void()> left) {
  left_ = std::move(left);
  try {
    MessageOut bye(Message::kBye);
    send(bye);
  } catch (const ProtocolError&) {  // it is killed below
  }
  loop_.forget(control_.get());
  control_.reset();
  if (timer_) loop_.cancel(*timer_);
  timer_ = loop_.at(EventLoop::Clock::now() + kFarewell, [this] {
    timer_.reset();
    std::exchange(left_, {})();
  });
}

}  // namespace lanewise
