#include "runtime/exchange.h"

#include <algorithm>

#include "runtime/data_files.h"
#include "runtime/packing.h"

namespace lanewise {

std::vector<nlohmann::json> gather_json(World& world, const nlohmann::json& own) {
  std::vector<nlohmann::json> all;
  for (const std::string& text : world.gather(own.dump())) all.push_back(nlohmann::json::parse(text));
  return all;
}

bool any_process(World& world, bool here) {
  const std::vector<std::string> all = world.gather(here ? "1" : "");
  return std::ranges::any_of(all, [](const std::string& text) { return !text.empty(); });
}

nlohmann::ordered_json data_files_of_all(World& world, const Plan& own) {
  nlohmann::ordered_json files = data_files(own);
  if (world.size() == 1) return files;  // as they are: paths need not be UTF-8
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  const std::vector<std::string> told = world.gather(files.dump());
  for (int r = 0; r < world.size(); ++r) {
    const nlohmann::ordered_json theirs = nlohmann::ordered_json::parse(told[r]);
    for (const auto& [name, file] : theirs.items()) {
      if (all.contains(name) && all[name]["sha256"] != file["sha256"]) {
        throw Error(Exit::kPeer, fmt::format("{} of {}, {}, differs from that of processes before it; give all of them "
                                             "the same file",
                                             name, world.name_of(r), file["path"].get<std::string>()));
      }
      all[name] = file;
    }
  }
  return all;
}

std::optional<Checkpoint> checkpoint_of_first(World& world, std::optional<Checkpoint> own) {
  if (world.size() == 1) return own;
  const std::string bytes = world.from_first(own ? pack(*own) : "");
  if (world.first() || bytes.empty()) return own;
  return unpack(bytes);
}

std::vector<std::uint64_t> by_stream(World& world, const LaneTable& lanes, const std::vector<std::uint64_t>& own) {
  const std::vector<nlohmann::json> all = gather_json(world, own);
  std::vector<std::uint64_t> numbers;
  for (std::size_t s = 0; s < own.size(); ++s) numbers.push_back(all[lanes.rank_of_stream(static_cast<int>(s))].at(s));
  return numbers;
}

std::string weights_apart(World& world, const Replicas& replicas) {
  const std::vector<nlohmann::json> all = gather_json(world, replicas.parameter_sha256());
  for (int r = 1; r < world.size(); ++r) {
    for (std::size_t i = 0; i < replicas.specs().size(); ++i) {
      if (all[r].at(i) == all[0].at(i)) continue;
      return fmt::format("{} of {} differs from that of {}", replicas.specs()[i].name, world.name_of(r),
                         world.name_of(0));
    }
  }
  return "";
}

FlowReport reports_of_all(World& world, const LaneTable& lanes, const Plan& whole, const FlowReport& own,
                          Ledger& ledger) {
  if (world.size() == 1) return own;
  nlohmann::json told = {{"flow", pack(own)}, {"streams", nlohmann::json::array()}};
  for (int s = 0; s < ledger.streams(); ++s) told["streams"].push_back(pack(ledger.account(s)));
  const std::vector<nlohmann::json> all = gather_json(world, told);
  for (int s = 0; s < ledger.streams(); ++s)
    ledger.set(s, unpack_account(all[lanes.rank_of_stream(s)].at("streams").at(s)));
  std::vector<FlowReport> reports;
  for (const nlohmann::json& one : all) reports.push_back(unpack_flow_report(one.at("flow")));
  return merge_reports(whole, reports);
}

}  // namespace lanewise
