#include "runtime/generators/group_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "graph/error.h"

namespace lanewise {
namespace {

// Reads "+ 123" and "- 123". In a session of its own, so that neither a terminal nor a group's end reaches it.
constexpr const char* kScript = R"sh(groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done)sh";

void check(int error) {
  if (error == 0) return;
  throw Error(Exit::kGenerator, "cannot start /bin/sh, which ends what generators leave behind: " +
                                    std::system_category().message(error));
}

}  // namespace

GroupGuard& GroupGuard::instance() {
  static GroupGuard one;
  return one;
}

GroupGuard::GroupGuard() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) check(errno);
  const Descriptor input(ends[0]);
  pipe_ = Descriptor(ends[1]);
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), 0);
  for (const int descriptor : {1, 2})
    ::posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  ::posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::array<std::string, 3> words = {"lanewise-guard", "-c", kScript};
  std::array<char*, 4> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  std::array<char*, 1> environment = {nullptr};
  const int error = ::posix_spawn(&id_, "/bin/sh", &actions, &attributes, arguments.data(), environment.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  check(error);
}

GroupGuard::~GroupGuard() {
  pipe_.reset();
  ::waitpid(id_, nullptr, 0);
}

void GroupGuard::tell(char sign, pid_t group) const {
  const std::string line = fmt::format("{} {}\n", sign, group);
  [[maybe_unused]] const auto written = ::write(pipe_.get(), line.data(), line.size());
}

}  // namespace lanewise
