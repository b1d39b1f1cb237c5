#include "runtime/report.h"

#include <oneapi/tbb/version.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace lanewise {
namespace {

constexpr std::array<std::string_view, 3> kOptions = {"--set", "--swap", "--plugin"};  // by Override::Kind

void append(std::string& out, std::optional<double> value) {
  if (value && std::isfinite(*value)) {
    fmt::format_to(std::back_inserter(out), "{}", *value);
  } else {
    out += "null";
  }
}

void append(std::string& out, const char* key, const std::vector<std::optional<double>>& values) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":[", key);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append(out, values[i]);
  }
  out += ']';
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  std::string out = fmt::format("{{\"step\":{},\"loss\":", record.step);
  append(out, record.loss);
  append(out, "lanes", record.lanes);
  append(out, "streams", record.streams);
  out += ",\"n\":";
  append(out, record.n);
  out += ",\"lr\":";
  append(out, record.lr);
  out += ",\"grad_norm\":";
  append(out, record.grad_norm);
  out += "}\n";
  return out;
}

nlohmann::ordered_json manifest(const Plans& plans, int threads) {
  const Plan& train = plans.train;
  nlohmann::ordered_json overrides = nlohmann::ordered_json::array(), source = nlohmann::ordered_json::array();
  for (const Override& change : plans.source.overrides) {
    const std::string_view option = kOptions.at(static_cast<std::size_t>(change.kind));
    overrides.push_back(fmt::format("{} {}", option, change.text));
    source.push_back({{"option", option}, {"text", change.text}, {"folder", change.folder}});
  }
  return {{"format", 2},
          {"name", train.name},
          {"digest", train.digest},
          {"evaluate_digest", plans.evaluate ? nlohmann::ordered_json(plans.evaluate->digest) : nullptr},
          {"overrides", overrides},
          {"seed", train.run.seed},
          {"threads", threads},
          {"dtype", train.run.dtype},
          {"reduction", train.reduction()},
          {"weights", train.run.weights},
          {"on_end", train.end_rule},
          {"versions", versions()},
          {"pipeline", train.expanded},
          {"source",
           {{"file", plans.source.file},
            {"text", plans.source.text},
            {"bases", plans.source.bases},
            {"overrides", source},
            {"gpus", plans.source.gpus},
            {"hosts", plans.source.hosts}}}};
}

PlanSource plan_source(const nlohmann::json& manifest, const std::string& path) {
  const Error another(Exit::kCheckpoint,
                      fmt::format("{} is not the manifest of a run that this version can go on with", path));
  try {
    const nlohmann::json& saved = manifest.at("source");
    PlanSource source{.text = saved.at("text"),
                      .file = saved.at("file"),
                      .bases = saved.value("bases", std::map<std::string, std::string>()),
                      .overrides = {},
                      .gpus = saved.value("gpus", 0),
                      .hosts = saved.value("hosts", 1)};
    for (const nlohmann::json& change : saved.at("overrides")) {
      const auto option = std::ranges::find(kOptions, change.at("option").get<std::string>());
      if (option == kOptions.end()) throw another;
      source.overrides.push_back(
          {static_cast<Override::Kind>(option - kOptions.begin()), change.at("text"), change.at("folder")});
    }
    return source;
  } catch (const nlohmann::json::exception&) {
    throw another;
  }
}

std::string evaluation_text(const nlohmann::ordered_json& evaluation) {
  const auto text = [](const nlohmann::ordered_json& value) {
    return value.is_null() ? "none" : fmt::format("{:.4f}", value.get<double>());
  };
  const nlohmann::ordered_json& baselines = evaluation.at("baselines");
  return fmt::format("loss {}, mse {} (last value {}, training mean {}), {} targets", text(evaluation.at("loss")),
                     text(evaluation.at("mse")), text(baselines.at("last")), text(baselines.at("mean")),
                     evaluation.at("n").get<double>());
}

nlohmann::ordered_json edges_json(const FlowReport& report) {
  nlohmann::ordered_json edges = nlohmann::ordered_json::array();
  for (const EdgeReport& e : report.edges) {
    edges.push_back({{"from", e.from},
                     {"to", e.to},
                     {"capacity", e.capacity},
                     {"deepest", e.deepest},
                     {"put", e.put},
                     {"taken", e.taken},
                     {"left", e.left},
                     {"starved_s", e.starved_s},
                     {"blocked_s", e.blocked_s}});
  }
  return edges;
}

nlohmann::ordered_json nodes_json(const FlowReport& report) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeReport& n : report.nodes) {
    nodes.push_back({{"id", n.id},
                     {"type", n.type},
                     {"fired", n.fired},
                     {"absorbed", n.absorbed},
                     {"busy", n.busy},
                     {"starved", n.starved},
                     {"blocked", n.blocked},
                     {"busy_s", n.busy_s}});
  }
  return nodes;
}

std::string version() { return LANEWISE_VERSION; }

nlohmann::ordered_json versions() {
  return {{"lanewise", LANEWISE_VERSION}, {"libtorch", TORCH_VERSION}, {"onetbb", TBB_runtime_version()}};
}

nlohmann::ordered_json checkpoints_json(const CheckpointWriter::Times& times) {
  return {{"saved", times.saves},
          {"failed", times.failed},
          {"mean_seconds", times.mean_seconds},
          {"max_seconds", times.max_seconds},
          {"snapshot_seconds", times.snapshot_seconds},
          {"wait_seconds", times.wait_seconds}};
}

}  // namespace lanewise
