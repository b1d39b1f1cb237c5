#include "runtime/generators/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "graph/error.h"
#include "runtime/generators/group_guard.h"

extern "C" {
#include <sys/pidfd.h>  // says nothing of C++ before glibc 2.37
}

namespace lanewise {
namespace {

struct Pipe {
  Descriptor read, write;
  static Pipe make() {
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error(Exit::kGenerator, "cannot make a pipe: " + std::system_category().message(errno));
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

// The environment of lanewise with some variables more, or other ones.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view one = *at;
    const std::string_view name = one.substr(0, one.find('=') + 1);
    const bool other = std::ranges::any_of(variables, [name](const std::string& v) { return v.starts_with(name); });
    if (!other) all.emplace_back(one);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Where a program may be: a path as it is, a name in each folder of the PATH that the program is to have.
std::vector<std::string> programs_of(const std::string& name, const std::vector<std::string>& variables) {
  if (name.find('/') != std::string::npos) return {name};
  std::string_view path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : variables) {
    if (variable.starts_with("PATH=")) path = std::string_view(variable).substr(5);
  }
  std::vector<std::string> programs;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string_view folder = path.substr(begin, end - begin);
    programs.push_back((folder.empty() ? "." : std::string(folder)) + "/" + name);
    begin = end + 1;
  }
  return programs;
}

// What could not be done, and the system's reason; from the child, through a pipe that the program's start closes.
struct Failure {
  char what[32] = {};
  int error = 0;
};

// What the child does between its birth and the program, in memory that is still the parent's: system calls alone.
struct Birth {
  const char* folder;
  char* const* programs;  // where the program may be, the first that is there
  char* const* arguments;
  char* const* variables;
  int input, output, errors, inherited, told;
  pid_t parent;

  [[noreturn]] void fail(const char* what) {
    Failure failure{.error = errno};
    for (std::size_t i = 0; what[i] != '\0' && i + 1 < sizeof failure.what; ++i) failure.what[i] = what[i];
    [[maybe_unused]] const auto written = ::write(told, &failure, sizeof failure);
    ::_exit(127);
  }
  [[noreturn]] void run() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before it could be told
    ::setpgid(0, 0);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(errors, 2) < 0) fail("redirect its output");
    close_all_on_start();
    if (::fcntl(inherited, F_SETFD, 0) != 0) fail("hand over its socket");
    if (::chdir(folder) != 0) fail("enter its folder");
    int error = ENOENT;
    for (char* const* program = programs; *program != nullptr; ++program) {
      ::execve(*program, arguments, variables);
      if (errno != ENOENT && errno != ENOTDIR) error = errno;
      if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;  // it is there
    }
    errno = error;
    fail("start the program");
  }
  // All descriptors but the standard ones, one by one where the system is too old to do it at once.
  static void close_all_on_start() {
    if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
    const long most = ::sysconf(_SC_OPEN_MAX);
    for (int descriptor = 3; descriptor < most; ++descriptor) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
};

}  // namespace

std::string ChildEnd::text() const {
  if (!signalled) return fmt::format("has left with status {}", number);
  const char* const name = ::sigabbrev_np(number);
  return fmt::format("was killed by signal {} ({}{})", number, name != nullptr ? fmt::format("SIG{}", name) : "unknown",
                     number == SIGKILL ? "; possibly out of memory" : "");
}

ChildProcess::ChildProcess(const ChildCommand& command, int inherited) {
  Pipe output = Pipe::make(), errors = Pipe::make(), told = Pipe::make();
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> arguments = command.arguments, variables = environment_with(command.variables);
  std::vector<std::string> programs = programs_of(arguments.at(0), variables);
  const std::vector<char*> program_pointers = pointers(programs);
  const std::vector<char*> argument_pointers = pointers(arguments), variable_pointers = pointers(variables);
  Birth birth{.folder = command.folder.c_str(),
              .programs = program_pointers.data(),
              .arguments = argument_pointers.data(),
              .variables = variable_pointers.data(),
              .input = input.get(),
              .output = output.write.get(),
              .errors = errors.write.get(),
              .inherited = inherited,
              .told = told.write.get(),
              .parent = ::getpid()};
  const GroupGuard& guard = GroupGuard::instance();
  // With all signals blocked: no handler of the parent's may run in the child.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  id_ = ::vfork();  // copies no page tables, however much memory lanewise has; this thread goes on when it is over
  if (id_ == 0) birth.run();
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (id_ < 0) throw Error(Exit::kGenerator, "no process can be made: " + std::system_category().message(error));
  told.write.reset();
  ::fcntl(told.read.get(), F_SETFL, 0);  // waits, where fork() stands in for vfork(), as under ThreadSanitizer
  Failure failure;
  if (::read(told.read.get(), &failure, sizeof failure) == sizeof failure) {
    ::waitpid(id_, nullptr, 0);
    throw Error(Exit::kGenerator, fmt::format("cannot {} (\"{}\" in {}): {}", failure.what, command.arguments.front(),
                                              command.folder, std::system_category().message(failure.error)));
  }
  guard.add(id_);
  ended_ = Descriptor(::pidfd_open(id_, 0));
  output_ = std::move(output.read);
  errors_ = std::move(errors.read);
  if (!ended_) {
    end_group();
    throw Error(Exit::kGenerator, "cannot watch a process: " + std::system_category().message(errno));
  }
}

ChildProcess::~ChildProcess() {
  if (ended_) end_group();
}

void ChildProcess::end_group() const {
  kill();
  GroupGuard::instance().remove(id_);
  ::waitpid(id_, nullptr, 0);
}

std::optional<ChildEnd> ChildProcess::end() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid == 0)
    return std::nullopt;
  return ChildEnd{.signalled = info.si_code != CLD_EXITED, .number = info.si_status};
}

void ChildProcess::kill() const {
  ::kill(-id_, SIGKILL);
  ::kill(id_, SIGKILL);  // before it has made its group
}

}  // namespace lanewise
