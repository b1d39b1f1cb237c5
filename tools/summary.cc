#include "tools/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// The value at a pointer, null when there is none: a run that failed early has little to tell.
Json value_at(const Json& json, const std::string& pointer) { return json.value(Json::json_pointer(pointer), Json()); }

std::string number(const Json& value) { return value.is_number() ? short_number(value.get<double>()) : "-"; }

std::string count(const Json& value) {
  return value.is_number() ? grouped(static_cast<std::uint64_t>(value.get<double>())) : "-";
}

// n, the model's figure and the baselines' of one evaluation, pooled or of a stream.
std::vector<std::string> scores(const std::string& name, const Json& evaluation) {
  return {name,
          number(value_at(evaluation, "/n")),
          number(value_at(evaluation, "/loss")),
          number(value_at(evaluation, "/mse")),
          number(value_at(evaluation, "/baselines/last")),
          number(value_at(evaluation, "/baselines/mean"))};
}

std::string evaluation_table(const Json& evaluation) {
  std::vector<std::vector<std::string>> rows = {{"evaluation", "n", "loss", "mse", "last value", "training mean"}};
  const Json streams = value_at(evaluation, "/streams");
  for (const auto& [stream, scored] : streams.items()) rows.push_back(scores(stream, scored));
  rows.push_back(scores("all", evaluation));
  return columns(rows, "  ");
}

// "lane3 (compute), busy 91 % of the time": the node that works most holds up the others.
std::string slowest(const Json& nodes) {
  const Json* most = nullptr;
  for (const Json& node : nodes) {
    if (!most || node.at("busy").get<double>() > most->at("busy").get<double>()) most = &node;
  }
  if (!most) return "none";
  return fmt::format("{} ({}), busy {:.0f} % of the time", most->at("id").get<std::string>(),
                     most->at("type").get<std::string>(), 100 * most->at("busy").get<double>());
}

// What to open first, of what the run has left: a run that failed early leaves little.
std::vector<std::string> left_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const char* name : {"report.json", "metrics.jsonl", "weights.safetensors", "graph.dot", "checkpoints/"}) {
    std::error_code none;
    if (std::filesystem::exists(std::filesystem::path(directory) / name, none)) files.emplace_back(name);
  }
  return files;
}

}  // namespace

std::string summary(const Json& report, const std::string& directory) {
  std::uint64_t samples = 0;
  const Json streams = value_at(report, "/samples");
  for (const auto& [stream, entry] : streams.items()) samples += value_at(entry, "/trained").get<std::uint64_t>();
  std::string steps = fmt::format("{}, {} samples trained", count(value_at(report, "/steps")), grouped(samples));
  if (report.contains("resumed_after")) steps += fmt::format(", resumed after step {}", count(report["resumed_after"]));
  std::vector<std::vector<std::string>> rows = {
      {report.at("exit") == 0 ? "done" : "stopped", value_at(report, "/reason").get<std::string>()},
      {"steps", steps},
      {"loss", fmt::format("{} first, {} last", number(value_at(report, "/loss/first")),
                           number(value_at(report, "/loss/last")))},
      {"speed", fmt::format("{} samples/s, {} steps/s", count(value_at(report, "/samples_per_second")),
                            count(value_at(report, "/steps_per_second")))},
      {"slowest", slowest(value_at(report, "/nodes"))}};
  if (report.contains("skipped")) {
    rows.insert(rows.begin() + 2,
                {"skipped", fmt::format("{} more, not finite", count(value_at(report, "/skipped/steps")))});
  }
  std::string text = columns(rows, "");
  const Json evaluation = value_at(report, "/evaluation");
  if (!evaluation.is_null()) {
    text += evaluation_table(evaluation);
    const Json mse = value_at(evaluation, "/mse");
    if (mse.is_number()) {
      text +=
          fmt::format("on {} evaluated targets: mse {}, of the last value {}, of the training mean {}\n",
                      count(value_at(evaluation, "/n")), number(mse), number(value_at(evaluation, "/baselines/last")),
                      number(value_at(evaluation, "/baselines/mean")));
    }
  }
  const std::vector<std::string> files = left_files(directory);
  return text + fmt::format("results in {}{}{}\n", directory, files.empty() ? "" : ": ", fmt::join(files, ", "));
}

}  // namespace lanewise
