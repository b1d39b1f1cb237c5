// The Trainer runs a pipeline from its plans to its report: fits the normalisation, makes the replicas and nodes, runs
// the flow, evaluates and saves checkpoints between steps, and leaves the run directory (DESIGN.md, "What a run
// leaves").
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/spec.h"

namespace lanewise {

class Profiler;
class World;

struct RunOptions {
  std::string directory;  // made by run(); "" writes nothing. In a process that is not the first: "" or not
  bool resume = false;    // go on from the directory's newest checkpoint, or from step 0 where there is none
  bool quiet = false;     // no progress
  bool terminal = false;  // standard error is a terminal: one progress line that is rewritten
  bool pin = false;       // each worker on a core of its own
  std::chrono::milliseconds peer_timeout{60000};  // a process, or a GPU, may be late so long
  Profiler* profiler = nullptr;                   // looks on and ends the run, which it outlives; null: nobody does
  World* world = nullptr;  // the processes that train together, which outlive the run; null: this one alone
  // Asked now and then; a signal number once one came. The run then finishes its step and ends with kStopped.
  std::function<int()> signal = [] { return 0; };
  // Asked now and then; true when the user wants to see where the run stands (SIGUSR1).
  std::function<bool()> status_wanted = [] { return false; };
  // Called with each line for the user ("evaluation at step 299: mse 0.571 …"), from one thread at a time.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  // Called with raw text for the terminal, from one thread at a time; never throws.
  std::function<void(const std::string&)> draw = [](const std::string&) {};
};

class Trainer {
 public:
  Trainer(Plans plans, RunOptions options);
  ~Trainer();

  // Trains to the end. Whatever happens, the report is complete and, with a directory, written. Never throws:
  // what went wrong is in the report ("exit", "reason"). A run that cannot be resumed stays as it is; the report then
  // says "begun": false, and is not written. Of several processes all run the same plans, and the first
  // writes; the reports of the others tell how it ended, and nothing more.
  nlohmann::ordered_json run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lanewise
