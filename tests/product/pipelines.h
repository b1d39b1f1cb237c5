// Small pipelines for the whole-product tests, and what a run of one left.
#pragma once

#include <string>
#include <vector>

#include "tests/product/run_command.h"

namespace lanewise {

// Two sine streams -> a `fault` in each -> one lane. `fault` are the parameters of fault1 ({"at": 5, "kind": "nan"}),
// `run` the run section.
inline std::string faulty_pipeline(const std::string& fault, const std::string& run) {
  return replaced(replaced(R"({
    "name": "faulty",
    "models": { "net": { "type": "mlp", "hidden": [8] } },
    "nodes": [
      { "id": "gen", "repeat": 2, "type": "sine", "each": { "period": 7 }, "params": { "features": 4, "noise": 0.1, "samples": 60 } },
      { "id": "fault0", "type": "fault", "in": [ { "from": "gen0" } ] },
      { "id": "fault1", "type": "fault", "in": [ { "from": "gen1" } ], "params": FAULT },
      { "id": "pair", "type": "pair", "in": [ { "from": "fault0" }, { "from": "fault1" } ] },
      { "id": "lane", "type": "compute", "in": [ { "from": "pair" }, { "from": "opt", "initial": 1 } ],
        "device": "cpu:*", "params": { "model": "net", "loss": "mse" } },
      { "id": "reduce", "type": "allreduce", "in": [ { "from": "lane" } ] },
      { "id": "opt", "type": "optimizer", "in": [ { "from": "reduce" } ] } ],
    "run": RUN })",
                           "FAULT", fault),
                  "RUN", run);
}

// A run in a directory of its own.
struct Ran {
  Finished finished;
  nlohmann::json report;  // report.json; null when there is none
};

inline Ran run_in(const TempDir& dir, const std::string& name, std::vector<std::string> arguments,
                  const Surroundings& around = {}) {
  arguments.insert(arguments.begin(), "run");
  arguments.insert(arguments.end(), {"--out", dir.path(name)});
  Ran ran{lanewise_command(arguments, around), nullptr};
  const std::string report = dir.path(name) + "/report.json";
  if (std::filesystem::exists(report)) ran.report = read_json(report);
  return ran;
}

}  // namespace lanewise
