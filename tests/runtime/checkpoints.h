// Checkpoints for tests: their content is a function of the step.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "graph/sha256.h"
#include "runtime/checkpoint_store.h"
#include "tests/files.h"

namespace lanewise {

// A folder in memory where there is one: what a killed process wrote is as safe there, and fsync costs nothing.
struct RunFolder : TemporaryFolder {
  RunFolder()
      : TemporaryFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
};

inline Checkpoint make_checkpoint(std::uint64_t step) {
  const double s = static_cast<double>(step);
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.manifest = {{"plan", "3f2a"}, {"streams", {{{"name", "gen0"}, {"seq", step * 3}}}}, {"step", "not this"}};
  checkpoint.weights = {{"net.weight", at::arange(600).view({20, 30}).mul(s)},
                        {"net.bias", at::tensor({NAN, -0.0f, static_cast<float>(s)})},
                        {"net.none", at::empty({0, 5})}};
  checkpoint.state = {{"adam.moment", at::arange(300, at::kDouble).add(s)},
                      {"rows", at::full({4, 2}, static_cast<std::int64_t>(step), at::kLong)},
                      {"flags", at::ones({5}, at::kByte)}};
  return checkpoint;
}

// "" when the tensors are those of make_checkpoint(step) bit for bit, else the first that is not.
inline std::string differs_from(const Checkpoint& checkpoint, std::uint64_t step) {
  const Checkpoint right = make_checkpoint(step);
  if (checkpoint.step != step) return fmt::format("step {}", checkpoint.step);
  if (checkpoint.manifest["streams"] != right.manifest["streams"]) return "manifest";
  for (const auto& part : {&Checkpoint::weights, &Checkpoint::state}) {
    if ((checkpoint.*part).size() != (right.*part).size()) return "number of tensors";
    for (const NamedTensor& named : right.*part) {
      const auto found = std::ranges::find(checkpoint.*part, named.name, &NamedTensor::name);
      if (found == (checkpoint.*part).end() || found->tensor.sizes() != named.tensor.sizes() ||
          found->tensor.scalar_type() != named.tensor.scalar_type() ||
          (named.tensor.nbytes() > 0 &&
           std::memcmp(found->tensor.const_data_ptr(), named.tensor.const_data_ptr(), named.tensor.nbytes()) != 0)) {
        return named.name;
      }
    }
  }
  return "";
}

inline std::string path_of(const std::string& run, std::uint64_t step) {
  return fmt::format("{}/checkpoints/step-{:012}", run, step);
}

// The names in RUN/checkpoints, sorted, without "step-" and zeros: "2 3 .tmp-step-000000000004".
inline std::string listing(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    std::string name = entry.path().filename();
    if (name.starts_with("step-")) name.erase(0, std::min(name.find_first_not_of('0', 5), name.size() - 1));
    names.push_back(name);
  }
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, " "));
}

// Rewrites a manifest as another program might have written it: with the right sum.
inline void rewrite_manifest(const std::string& checkpoint, const std::string& text) {
  write_text(checkpoint + "/manifest.json", text);
  write_text(checkpoint + "/manifest.sha256", sha256_hex(text) + "  manifest.json\n");
}

inline constexpr const char* kCheckpointFiles[] = {"manifest.json", "manifest.sha256", "weights.safetensors",
                                                   "state.safetensors"};

}  // namespace lanewise
