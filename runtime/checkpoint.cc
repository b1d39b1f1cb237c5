#include "runtime/checkpoint.h"

#include <cmath>
#include <functional>

#include "graph/sha256.h"
#include "runtime/atomic_file.h"
#include "runtime/input_file.h"
#include "runtime/kill_point.h"
#include "runtime/output_file.h"
#include "runtime/strict_json.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;
using Sink = std::function<void(std::string_view)>;

constexpr std::uint64_t kFormat = 1;
constexpr std::uint64_t kMaxManifest = std::uint64_t{64} << 20;
constexpr const char* kManifest = "/manifest.json";
constexpr const char* kManifestSum = "/manifest.sha256";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kState = "state.safetensors";

// Writes a file, on the disk when this returns; its entry in the manifest.
Json write_file(const std::string& path, const std::function<void(const Sink&)>& content) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;  // small enough to stay in the cache between sum and write
  OutputFile file(path);
  Sha256 sum;
  content([&](std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view block = bytes.substr(0, kBlock);
      sum.add(block);
      file.write(block);
      bytes.remove_prefix(block.size());
    }
  });
  file.sync();
  file.close();
  return {{"sha256", sum.hex()}, {"bytes", sum.bytes()}};
}

Json write_tensors(const std::string& path, std::span<const NamedTensor> tensors) {
  return write_file(path, [&](const Sink& sink) { encode_safetensors(tensors, {}, sink); });
}

std::string sum_line(const std::string& manifest) { return sha256_hex(manifest) + "  manifest.json\n"; }

[[noreturn]] void refuse(const std::string& path, const std::string& rule) {
  throw Error(Exit::kCheckpoint, fmt::format("{}: {}", path, rule));
}

std::vector<NamedTensor> load_tensors(const std::string& directory, const Json& manifest, const char* name) {
  const std::string path = directory + "/" + name;
  const Json& files = manifest["files"];
  const auto entry = files.find(name);
  if (entry == files.end() || !entry->is_object()) refuse(directory + kManifest, fmt::format("lists no {}", name));
  const InputFile file(path);
  if (const Json bytes = entry->value("bytes", Json()); bytes != file.size()) {
    refuse(path, fmt::format("has {} bytes where its manifest says {}", file.size(), bytes.dump()));
  }
  if (file.sha256() != entry->value("sha256", Json())) refuse(path, "its SHA-256 is not the one in its manifest");
  return read_safetensors(path).tensors;
}

}  // namespace

void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint, std::optional<double> score) {
  Json files = Json::object();
  files[kWeights] = write_tensors(directory + "/" + kWeights, checkpoint.weights);
  kill_point("weights written");
  files[kState] = write_tensors(directory + "/" + kState, checkpoint.state);
  kill_point("state written");

  Json manifest = {{"format", kFormat}, {"step", checkpoint.step}};
  manifest["score"] = score && std::isfinite(*score) ? Json(*score) : Json();
  manifest["files"] = std::move(files);
  for (const auto& [key, value] : checkpoint.manifest.items()) {
    if (!manifest.contains(key)) manifest[key] = value;
  }
  const std::string text = manifest.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  parse_strict_ordered(text, directory + kManifest);  // what could not be read back is no checkpoint
  write_file(directory + kManifest, [&](const Sink& sink) { sink(text); });
  write_file(directory + kManifestSum, [&](const Sink& sink) { sink(sum_line(text)); });
  sync_folder(directory);
  kill_point("manifest written");
}

Json load_checkpoint_manifest(const std::string& directory) {
  const std::string path = directory + kManifest;
  const std::string text = InputFile(path).text(kMaxManifest);
  const std::string expected = sum_line(text);
  if (const InputFile sum(directory + kManifestSum);
      sum.size() != expected.size() || sum.text(expected.size()) != expected) {
    refuse(path, "its SHA-256 is not the one in manifest.sha256");
  }
  Json manifest = parse_strict_ordered(text, path);
  const Json format = manifest.value("format", Json());
  if (!format.is_number_unsigned() || format == 0) refuse(path, "has no format version");
  if (format > kFormat) {
    throw NewerFormat(
        Exit::kCheckpoint,
        fmt::format("{} is of format {}, made by a newer lanewise; this one reads up to format {}: use the newer one",
                    path, format.dump(), kFormat));
  }
  if (!manifest.value("step", Json()).is_number_unsigned()) refuse(path, "has no step");
  if (!manifest.value("files", Json()).is_object()) refuse(path, "has no list of files");
  return manifest;
}

std::optional<double> score_of(const Json& manifest) {
  const Json score = manifest.value("score", Json());
  return score.is_number() ? std::optional(score.get<double>()) : std::nullopt;
}

Checkpoint load_checkpoint(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.manifest = load_checkpoint_manifest(directory);
  checkpoint.step = checkpoint.manifest["step"];
  checkpoint.weights = load_tensors(directory, checkpoint.manifest, kWeights);
  checkpoint.state = load_tensors(directory, checkpoint.manifest, kState);
  return checkpoint;
}

}  // namespace lanewise
