// Reads a pipeline file into a Spec: the file, or the one at the end of its "base"s, has the nodes; the others change
// it in turn, and the command line last.
//
//   { "base": "flights16.json", "swap": { "gen": { "type": "lorenz" } }, "set": { "lane.loss": "huber" } }
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/change.h"
#include "graph/document.h"
#include "graph/read.h"
#include "graph/spec.h"

namespace lanewise {

struct Loaded {
  std::vector<std::unique_ptr<Document>> files;  // the one that has the nodes comes first
  std::map<std::string, std::string> bases;      // text of each but the last, by its whole path
  std::shared_ptr<const Registry> types;         // that the pipeline can name; may point to the registry given
  Spec spec;                                     // refers to the files and the types
  std::vector<std::string> notes;

  const Document& nodes() const { return *files.front(); }
};

// `file` names the text and gives the folder of relative paths; "standard input" stands for itself. Bases are read from
// regular files, or taken from options.bases. Throws PipelineError when the text of a file is not complete.
Loaded load(const std::string& text, const std::string& file, const Registry& registry, const PlanOptions& options,
            std::vector<Problem>& problems);

// Plans what was loaded; `problems`: those found so far. Throws PipelineError with all. Plans::source is left empty.
Plans plan_loaded(const Loaded& loaded, const PlanOptions& options, std::vector<Problem> problems);

// The text of a file up to the size of a pipeline, "-" being standard input. Throws Error(kPipeline).
std::string read_pipeline_text(const std::string& file);

inline constexpr const char* kStandardInput = "standard input";

}  // namespace lanewise
