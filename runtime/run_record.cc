#include "runtime/run_record.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/exchange.h"

namespace lanewise {
namespace {

constexpr std::size_t kSkipsTold = 20;

nlohmann::ordered_json number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

std::optional<double> number_in(const nlohmann::ordered_json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

void RunRecord::skip(const std::string& what) {
  ++skips;
  if (skips_told.size() < kSkipsTold) skips_told.push_back(what);
}

void RunRecord::settle(World& world) {
  const nlohmann::json own = {{"reason", reason}, {"ended_by", ended_by}, {"stopped", stopped}};
  const std::vector<nlohmann::json> all = gather_json(world, own);
  auto told = std::ranges::find_if(all, [](const nlohmann::json& one) { return one.at("stopped").get<bool>(); });
  if (told == all.end())
    told = std::ranges::find_if(all, [](const nlohmann::json& one) { return one.at("reason") != ""; });
  if (told == all.end()) return;
  reason = told->at("reason");
  ended_by = told->at("ended_by");
  stopped = told->at("stopped");
}

nlohmann::ordered_json RunRecord::saved(const std::vector<std::uint64_t>& trained, double seconds) const {
  return {{"loss", {{"first", number(first_loss)}, {"last", number(last_loss)}}},
          {"samples", std::accumulate(trained.begin(), trained.end(), std::uint64_t{0})},
          {"trained", trained},
          {"steps_per_pass", steps_per_pass},
          {"seconds", seconds},
          {"skipped", {{"steps", skips}, {"told", skips_told}}},
          {"evaluation", evaluation},
          {"evaluated_at", evaluated_at}};
}

void RunRecord::restore(const nlohmann::ordered_json& manifest) {
  first_loss = number_in(manifest.at("loss").at("first"));
  last_loss = number_in(manifest.at("loss").at("last"));
  samples = samples_before = manifest.at("samples");
  for (std::size_t s = 0; s < trained_before.size(); ++s) trained_before[s] = manifest.at("trained").at(s);
  steps_per_pass = manifest.at("steps_per_pass");
  seconds_before = manifest.at("seconds");
  skips = manifest.at("skipped").at("steps");
  skips_told = manifest.at("skipped").at("told");
  evaluation = manifest.at("evaluation");
  evaluated_at = manifest.at("evaluated_at");
}

nlohmann::ordered_json RunRecord::told(const StreamTable& streams, const Ledger& ledger) const {
  nlohmann::ordered_json report;
  if (resumed_at > 0) report["resumed_after"] = resumed_at;
  if (skips > 0) report["skipped"] = {{"steps", skips}, {"told", skips_told}};
  report["samples"] = nlohmann::ordered_json::object();
  for (int s = 0; s < streams.size(); ++s) {
    const StreamAccount& a = ledger.account(s);
    const std::uint64_t before = trained_before[static_cast<std::size_t>(s)];
    report["samples"][streams.name(s)] = {{"produced", before + a.produced},
                                          {"trained", before + a.used},
                                          {"absorbed", a.absorbed},
                                          {"fillers", a.fillers},
                                          {"left", a.left}};
  }
  report["loss"] = {{"first", number(first_loss)}, {"last", number(last_loss)}};
  report["evaluation"] = evaluation;
  return report;
}

}  // namespace lanewise
