// Helpers of the whole-product tests: they drive the built `lanewise` (environment variable LANEWISE) and look at what
// it prints and leaves.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lanewise {

// A directory that is removed, with all in it, at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path(const std::string& name = "") const;
  std::string write(const std::string& name, const std::string& text) const;  // returns the path

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::string& path);  // fails the test when there is no such file
nlohmann::json read_json(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);
std::string replaced(std::string text, const std::string& what, const std::string& by);

struct Surroundings {
  std::string input;                     // on standard input
  std::vector<std::string> environment;  // "LC_ALL=de_DE.UTF-8", on top of this process's
  std::string output;                    // standard output is this existing file ("/dev/full"); "-": it is closed
  std::string directory;                 // where it runs; "": here
  double timeout_s = 120;
};

struct Finished {
  int exit = -1;   // -1: it did not exit by itself
  int signal = 0;  // that ended it
  bool timed_out = false;
  std::string out, err;
};

// A program that runs. Its output goes to files, so that it never waits for a reader.
class Process {
 public:
  Process(const std::vector<std::string>& argv, const Surroundings& around = {});
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits until `path` has at least `bytes` bytes; false when the program ended or the time was up first.
  bool wait_for_file(const std::string& path, std::size_t bytes = 1);
  // Waits until it has a handler for this signal; false as above.
  bool wait_to_catch(int signal);
  void send(int signal) const;
  Finished wait();

 private:
  bool wait_until(const std::function<bool()>& so);
  bool ended();
  TempDir dir_;
  Surroundings around_;
  pid_t pid_ = -1;
  int status_ = 0;
  double deadline_ = 0;
};

Finished run_program(const std::vector<std::string>& argv, const Surroundings& around = {});
// The `lanewise` command.
std::vector<std::string> lanewise_argv(const std::vector<std::string>& arguments);
Finished lanewise_command(const std::vector<std::string>& arguments, const Surroundings& around = {});

// Compares with tests/product/golden/NAME, which tools/renew-golden writes anew.
void check_golden(const std::string& name, const std::string& text);

}  // namespace lanewise
