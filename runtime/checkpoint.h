// A checkpoint: all that a run needs to go on as if it had never been interrupted. On disk it is a directory:
//
//   weights.safetensors  the model's state dict
//   state.safetensors    what else is made of tensors
//   manifest.json        {"format", "step", "score", "files": {NAME: {"sha256", "bytes"}}, …what the run adds}
//   manifest.sha256      the SHA-256 of manifest.json; `sha256sum -c` reads it
//
// So every byte is covered by a sum, and what was changed or cut is noticed before anything is used.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/error.h"
#include "runtime/safetensors.h"

namespace lanewise {

struct Checkpoint {
  std::uint64_t step = 0;           // steps applied
  nlohmann::ordered_json manifest;  // an object; the four keys above are the checkpoint's own
  std::vector<NamedTensor> weights, state;
};

// The checkpoint is of a format that came after this program's.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

// Writes the four files into a directory that is there and empty, and returns when all of it is on the disk. `score`,
// lower is better, is kept when it is finite. Throws Error(kCheckpoint) naming the path and the system's reason.
void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint, std::optional<double> score);

// Reads a checkpoint after checking every file against its sum. Throws Error(kCheckpoint) naming the file and what is
// wrong with it, or NewerFormat.
Checkpoint load_checkpoint(const std::string& directory);

// The manifest alone, checked against its sum; throws as above. The score that it holds, if any.
nlohmann::ordered_json load_checkpoint_manifest(const std::string& directory);
std::optional<double> score_of(const nlohmann::ordered_json& manifest);

}  // namespace lanewise
