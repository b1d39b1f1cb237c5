#include "runtime/directory_lock.h"

#include <fmt/format.h>

#include <csignal>
#include <optional>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

std::string in_use(const std::string& folder, pid_t process) {
  return fmt::format("2: {} is in use by another run (process {}); wait for it to end or name another directory",
                     folder, process);
}

}  // namespace

TEST_CASE("directory lock: a directory is held by one, until it is let go") {
  const TemporaryFolder folder, other;
  write_text(folder.path() + "/.lock", "4194304000000000\n");  // of a run that has ended
  {
    const DirectoryLock lock(folder.path());
    CHECK(read_text(folder.path() + "/.lock") == fmt::format("{}\n", ::getpid()));
    CHECK(error_of([&] { DirectoryLock second(folder.path()); }) == in_use(folder.path(), ::getpid()));
    CHECK(error_of([&] { DirectoryLock second(other.path()); }) == "");
  }
  CHECK(error_of([&] { DirectoryLock second(folder.path()); }) == "");
}

TEST_CASE("directory lock: a holder that says no process is still a holder") {
  const TemporaryFolder folder;
  const DirectoryLock lock(folder.path());
  write_text(folder.path() + "/.lock", "");
  CHECK(error_of([&] { DirectoryLock second(folder.path()); }) ==
        fmt::format("2: {} is in use by another run; wait for it to end or name another directory", folder.path()));
}

TEST_CASE("directory lock: another process is kept out and told whom to wait for; a killed one holds nothing") {
  const TemporaryFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t holder = start_process([&] {
    const DirectoryLock lock(folder.path());
    if (::write(ready[1], "x", 1) != 1) throw std::runtime_error("pipe");
    ::pause();
  });
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK(error_of([&] { DirectoryLock second(folder.path()); }) == in_use(folder.path(), holder));
  ::kill(holder, SIGKILL);
  CHECK(end_of(holder) == 128 + SIGKILL);
  CHECK(error_of([&] { DirectoryLock second(folder.path()); }) == "");
}

TEST_CASE("directory lock: a program started meanwhile does not inherit it") {
  const TemporaryFolder folder;
  std::optional<DirectoryLock> lock(std::in_place, folder.path());
  int out[2];
  REQUIRE(::pipe(out) == 0);
  const pid_t program = start_process([&] {
    ::dup2(out[1], 1);
    ::execlp("sh", "sh", "-c", "echo x; exec sleep 100", nullptr);
  });
  char byte = 0;
  REQUIRE(::read(out[0], &byte, 1) == 1);  // it runs
  lock.reset();
  CHECK(error_of([&] { lock.emplace(folder.path()); }) == "");
  ::kill(program, SIGKILL);
  CHECK(end_of(program) == 128 + SIGKILL);
  ::close(out[0]);
  ::close(out[1]);
}

TEST_CASE("directory lock: a directory that is not there is an error with the system's reason") {
  CHECK(error_of([] { DirectoryLock lock("/nowhere"); }) ==
        "6: cannot create /nowhere/.lock: No such file or directory");
}
