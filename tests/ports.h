// Ports of this machine's loopback interface, for tests.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace lanewise {

// A socket bound to a port that nobody has, which is put into `port`. The caller closes it.
inline int bound_socket(std::uint16_t& port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  if (::bind(s, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "no port to be had");
  }
  port = ntohs(address.sin_port);
  return s;
}

// A port that nobody has at this moment.
inline std::uint16_t free_port() {
  std::uint16_t port = 0;
  ::close(bound_socket(port));
  return port;
}

}  // namespace lanewise
