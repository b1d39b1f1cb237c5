#include "tools/trained_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "graph/diff.h"
#include "runtime/checkpoint_store.h"
#include "runtime/device.h"
#include "runtime/input_file.h"
#include "runtime/report.h"
#include "runtime/strict_json.h"
#include "runtime/world.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::size_t kDifferencesShown = 20;

// `than`: what the other plan is; `hint`: what to do.
void refuse_another_plan(const std::string& path, const nlohmann::ordered_json& manifest, const Plan& now,
                         const std::string& than, const std::string& hint) {
  if (manifest.value("digest", "") == now.digest) return;
  std::vector<std::string> lines =
      plan_differences(manifest.value("pipeline", nlohmann::ordered_json::object()), now.expanded);
  const std::size_t more = lines.size() > kDifferencesShown ? lines.size() - kDifferencesShown : 0;
  lines.resize(lines.size() - more);
  throw Error(Exit::kCheckpoint,
              fmt::format("{} was made from another plan than {}:\n  {}{}\n  {}", path, than, fmt::join(lines, "\n  "),
                          more > 0 ? fmt::format("\n  and {} more", more) : "", hint));
}

std::string manifest_path(const std::string& directory) {
  const std::string path = directory + "/manifest.json";
  if (std::filesystem::exists(path)) return path;
  throw Error(Exit::kCommandLine, fmt::format("{} holds no run: there is no manifest.json in it", directory));
}

nlohmann::ordered_json read_manifest(const std::string& path) {
  return parse_strict_ordered(InputFile(path).text(kMostBytes), path);
}

}  // namespace

void check_plan_of(const std::string& directory, const Plan& plan) {
  const std::string path = manifest_path(directory);
  refuse_another_plan(path, read_manifest(path), plan, "the pipeline named here",
                      "name another directory with --out, or go on with it by `lanewise resume`");
}

Plans plan_run(const std::string& directory, const std::vector<Override>& changes, bool predict,
               const Registry& registry) {
  const std::string path = manifest_path(directory);
  const nlohmann::ordered_json manifest = read_manifest(path);
  const PlanSource source = plan_source(manifest, path);
  PlanOptions options{.overrides = source.overrides,
                      .gpus = source.gpus,
                      .hosts = source.hosts,
                      .cores = usable_cores(),
                      .infer = true,
                      .bases = source.bases};
  options.load_plugins = false;  // before it is known that they are those of the run
  Plans plans = plan_pipeline(source.text, source.file, registry, options);
  refuse_another_plan(path, manifest, plans.train, "this version makes of it",
                      "name what is to be changed with --set, or go on with the version that made it");
  const bool has_plugins = plans.train.expanded.contains("plugins");
  if (changes.empty() && !predict && !has_plugins) return plans;
  const auto moves = [](const Override& change) {
    return change.kind == Override::Kind::kSet && change.text.substr(0, change.text.find('=')).ends_with(".device");
  };
  if (std::ranges::any_of(changes, moves)) {  // to what is here, which may be another machine
    options.gpus = usable_gpus();
    options.hosts = hosts();
  }
  options.load_plugins = true;
  options.overrides.insert(options.overrides.end(), changes.begin(), changes.end());
  options.predict = predict;
  return plan_pipeline(source.text, source.file, registry, options);
}

Checkpoint checkpoint_of(const std::string& directory, bool best) {
  const CheckpointStore store(directory, say_line);
  std::optional<Checkpoint> checkpoint = best ? store.best() : store.newest();
  if (!checkpoint) {
    throw Error(Exit::kCheckpoint,
                fmt::format("{} holds no checkpoint{} yet", directory, best ? " with an evaluation" : ""));
  }
  return std::move(*checkpoint);
}

}  // namespace lanewise
