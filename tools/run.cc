// lanewise run: trains a pipeline, leaves a run directory, and ends with what came of it.
#include <fmt/format.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "graph/text.h"
#include "nodes/plugins.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/trained_run.h"
#include "tools/training.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

// A pipeline's name as a part of a file name: letters, digits, '.', '-', '_'; never empty, hidden or long.
std::string file_name(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 80)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    text += plain ? c : '_';
  }
  return text.empty() || text.front() == '.' ? "run" + text : text;
}

constexpr const char* kOfTheFirst = "the first process's";  // the directory of a run, in the other processes

// Whether the directory holds a run, which then is of this plan.
bool goes_on(const std::string& directory, const Plan& plan) {
  std::error_code error;
  if (!fs::exists(fs::path(directory) / "manifest.json", error)) return false;
  check_plan_of(directory, plan);
  return true;
}

[[noreturn]] void cannot_make(const std::string& directory, const std::error_code& error) {
  throw Error(Exit::kCommandLine, fmt::format("the run directory {} cannot be made ({}); name another with --out",
                                              directory, error.message()));
}

// A directory that was made for a run.
struct Made {
  std::string path;
  bool is_new = true;
};

// Makes the directory asked for, which may exist but holds no run.
Made make_directory(const std::string& asked) {
  std::error_code error;
  if (fs::exists(fs::path(asked) / "manifest.json", error)) {
    throw Error(Exit::kCommandLine,
                fmt::format("{} already holds a run; name another directory with --out, or remove it", asked));
  }
  const bool is_new = fs::create_directories(asked, error);
  if (!error && !fs::is_directory(asked, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) cannot_make(asked, error);
  return {asked, is_new};
}

// Makes runs/NAME-YYYYMMDD-HHMMSS, with -2, -3, … behind it until it is a new one.
Made make_default_directory(const std::string& name) {
  std::error_code error;
  fs::create_directories("runs", error);
  if (error) cannot_make("runs", error);
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  localtime_r(&now, &t);
  const std::string base = fmt::format("runs/{}-{:04}{:02}{:02}-{:02}{:02}{:02}", file_name(name), t.tm_year + 1900,
                                       t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
  for (int i = 1;; ++i) {
    const std::string directory = i == 1 ? base : fmt::format("{}-{}", base, i);
    if (fs::create_directory(directory, error)) return {directory};
    if (error) cannot_make(directory, error);
  }
}

}  // namespace

int run_command(const Arguments& arguments) {
  Options options(
      "run",
      "Trains a pipeline to its end and leaves a run directory: manifest, metrics, report, weights, graph. "
      "A pipeline may start programs and load model code: run only files you trust.",
      {"lanewise run configs/flights16.json", "lanewise run configs/flights16.json --out runs/first --set run.passes=1",
       "lanewise run configs/sines16.json --swap 'gen={\"type\":\"lorenz\"}' --set opt.lr=0.003",
       "lanewise run configs/minimal.json --json --quiet > report.json"});
  std::string directory, timeout;
  bool quiet = false, json = false, pin = false, resume = false;
  options.pipeline();
  options.text("--out", directory, "where the run goes (default: runs/NAME-TIME)", "DIR");
  options.flag("--resume-if-any", resume, "goes on with the run in DIR if there is one, as torchrun's restarts need");
  add_peer_timeout(options, timeout);
  options.flag("--quiet", quiet, "no progress; errors and the summary only");
  options.flag("--json", json, "prints the report on standard output, and nothing else there");
  options.flag("--pin", pin, "keeps each worker on a core of its own, for measuring");
  if (!options.parse(arguments)) return 0;
  if (resume && directory.empty()) {
    throw Error(Exit::kCommandLine, "--resume-if-any needs --out DIR, the run to look for");
  }

  catch_stop_signals();
  const Registry registry = loading_registry();  // outlives the plans, whose nodes point into it
  const double timeout_s = peer_timeout(timeout);
  Plans plans = plan_to_train(options, registry, timeout_s);
  if (find_bad_utf8(plans.source.file) != std::string::npos) {
    throw Error(Exit::kCommandLine,
                fmt::format("{}: this path is not UTF-8, so that the run's manifest could not name it; "
                            "rename the file or its folder",
                            escaped(plans.source.file)));
  }
  const std::unique_ptr<World> world = meet_processes(plans, resume ? "run --resume-if-any" : "run", timeout_s);
  Made made{.path = "", .is_new = false};
  if (world == nullptr || world->first()) {
    try {
      resume = resume && goes_on(directory, plans.train);
      if (!resume) made = directory.empty() ? make_default_directory(plans.train.name) : make_directory(directory);
      if (!resume) directory = made.path;
    } catch (const Error& error) {
      if (world != nullptr) world->tell_failure(error.exit(), error.what());
      throw;
    }
  } else {
    directory = kOfTheFirst;
  }
  if (world != nullptr) resume = world->from_first(resume ? "resume" : "").size() > 0;
  const int code = train_and_tell(std::move(plans),
                                  {.directory = directory,
                                   .resume = resume,
                                   .quiet = quiet,
                                   .pin = pin,
                                   .peer_timeout = as_time(timeout_s),
                                   .world = world.get()},
                                  json);
  std::error_code error;
  if (made.is_new && code != 0) fs::remove(made.path, error);  // it stays where anything was written to it
  return code;
}

}  // namespace lanewise
