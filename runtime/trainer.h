// The Trainer runs a pipeline from its plans to its report: fits the normalisation, makes the replicas and nodes, runs the
// flow, evaluates between steps, and leaves the run directory (DESIGN.md, "What a run leaves").
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

struct RunOptions {
  std::string directory;   // made by run(); "" writes nothing
  std::vector<std::string> overrides;  // the command line's changes, for the manifest
  bool quiet = false;      // no progress
  bool terminal = false;   // standard error is a terminal: one progress line that is rewritten
  bool pin = false;        // each worker on a core of its own
  // Asked now and then; a signal number once one came. The run then finishes its round and ends with kStopped.
  std::function<int()> signal = [] { return 0; };
  // Called with each line for the user ("evaluation at step 299: mse 0.571 …"), from one thread at a time.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

class Trainer {
 public:
  Trainer(Plans plans, RunOptions options);
  ~Trainer();

  // Trains to the end. Whatever happens, the report is complete and, with a directory, written. Never throws:
  // what went wrong is in the report ("exit", "reason").
  nlohmann::ordered_json run();

  // After run(): the training flow's counters, for dumps.
  const FlowReport& flow_report() const;
  const Plan& plan() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lanewise
