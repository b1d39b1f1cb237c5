#include "tests/product/run_command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace lanewise {
namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

std::string read_if_there(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// In the child, between fork and exec: nothing here may allocate or lock.
[[noreturn]] void become(char* const* argv, char* const* environment, const char* in, const char* out, const char* err,
                         bool close_output, const char* directory) {
  signal(SIGPIPE, SIG_DFL);
  dup2(open(in, O_RDONLY), 0);
  dup2(open(out, O_WRONLY | O_CREAT, 0600), 1);
  dup2(open(err, O_WRONLY | O_CREAT, 0600), 2);
  for (int i = 3; i < 64; ++i) close(i);
  if (close_output) close(1);
  if (directory[0] != '\0' && chdir(directory) != 0) _exit(127);
  execve(argv[0], argv, environment);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

TempDir::TempDir() {
  std::string text = (fs::temp_directory_path() / "lanewise-test-XXXXXX").string();
  REQUIRE(mkdtemp(text.data()) != nullptr);
  path_ = text;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempDir::path(const std::string& name) const {
  return name.empty() ? path_.string() : (path_ / name).string();
}

std::string TempDir::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string read_text(const std::string& path) {
  INFO("file: " << path);
  REQUIRE(fs::is_regular_file(path));
  return read_if_there(path);
}

nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_text(path)); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t i = 0; (i = text.find(what, i)) != std::string::npos; i += by.size())
    text.replace(i, what.size(), by);
  return text;
}

Process::Process(const std::vector<std::string>& argv, const Surroundings& around)
    : around_(around), deadline_(now() + around.timeout_s) {
  std::vector<std::string> arguments = argv, environment;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string entry = *e, key = entry.substr(0, entry.find('=') + 1);
    bool overridden = false;
    for (const std::string& given : around.environment) overridden = overridden || given.starts_with(key);
    if (!overridden) environment.push_back(entry);
  }
  environment.insert(environment.end(), around.environment.begin(), around.environment.end());
  const std::string in = dir_.write("in", around.input), err = dir_.path("err");
  const bool to_file = around.output.empty() || around.output == "-";
  const std::string out = to_file ? dir_.path("out") : around.output;
  const std::vector<char*> argv_pointers = pointers(arguments), environment_pointers = pointers(environment);
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    become(argv_pointers.data(), environment_pointers.data(), in.c_str(), out.c_str(), err.c_str(),
           around.output == "-", around.directory.c_str());
  }
}

Process::~Process() {
  if (ended()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

bool Process::ended() {
  if (pid_ < 0) return true;
  if (waitpid(pid_, &status_, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

bool Process::wait_until(const std::function<bool()>& so) {
  while (!so()) {
    if (ended() || now() > deadline_) return false;
    nap();
  }
  return true;
}

bool Process::wait_for_file(const std::string& path, std::size_t bytes) {
  return wait_until([&] {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    return !error && size >= bytes;
  });
}

bool Process::wait_to_catch(int signal) {
  return wait_until([&] {
    std::ifstream status(fmt::format("/proc/{}/status", pid_));
    const std::string name = "SigCgt:";
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(name)) return (std::stoull(line.substr(name.size()), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return false;
  });
}

void Process::send(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

Finished Process::wait() {
  Finished finished;
  while (!ended()) {
    if (now() > deadline_) {
      finished.timed_out = true;
      kill(pid_, SIGKILL);
      waitpid(pid_, &status_, 0);
      pid_ = -1;
      break;
    }
    nap();
  }
  if (WIFEXITED(status_)) finished.exit = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) finished.signal = WTERMSIG(status_);
  finished.out = read_if_there(dir_.path("out"));
  finished.err = read_if_there(dir_.path("err"));
  return finished;
}

Finished run_program(const std::vector<std::string>& argv, const Surroundings& around) {
  return Process(argv, around).wait();
}

std::vector<std::string> lanewise_argv(const std::vector<std::string>& arguments) {
  const char* path = std::getenv("LANEWISE");
  REQUIRE_MESSAGE((path != nullptr && *path != '\0'), "LANEWISE must name the built command; ctest sets it");
  std::vector<std::string> argv = {fs::absolute(path).string()};  // programs may run elsewhere
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

Finished lanewise_command(const std::vector<std::string>& arguments, const Surroundings& around) {
  const Finished finished = run_program(lanewise_argv(arguments), around);
  REQUIRE_MESSAGE(!finished.timed_out, "lanewise took more than " << around.timeout_s << " s; it said\n"
                                                                  << finished.err);
  REQUIRE_MESSAGE(finished.signal == 0, "lanewise was ended by signal " << finished.signal << "; it said\n"
                                                                        << finished.err);
  return finished;
}

void check_golden(const std::string& name, const std::string& text) {
  const std::string path = "tests/product/golden/" + name;
  if (std::getenv("LANEWISE_RENEW_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  INFO("renewed by tools/renew-golden: " << path);
  CHECK(text == read_if_there(path));
}

}  // namespace lanewise
