#include "runtime/device.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "graph/error.h"
#include "graph/text.h"
#include "runtime/cuda_library.h"
#include "runtime/devices/emulated.h"
#include "runtime/devices/switches.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

// Of all lanes.
std::vector<int> gpus_of(const Plan& plan) {
  return gpus_of_lanes(plan, {0, static_cast<int>(plan.with_role(Role::kCompute).size())});
}

// Refuses a plan with a lane on a GPU behind the last one, as one that was made on another machine may have.
void check_count(const Plan& plan, int here) {
  for (const int lane : plan.with_role(Role::kCompute)) {
    const PlanNode& node = plan.nodes[lane];
    if (node.gpu().value_or(0) < here) continue;
    throw Error(Exit::kDevice,
                fmt::format("{} is on {}, and {} {} here; on {} it runs with --set {}.device=cuda:*, on virtual "
                            "devices of the host with --set {}.device=cpu:*",
                            node.id, node.device, counted(static_cast<std::size_t>(here), "GPU"),
                            here == 1 ? "is" : "are", here == 1 ? "it" : "these", node.base, node.base));
  }
}

// This host's name, and what no other of that name has.
std::pair<std::string, std::string> this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return {name.data(), boot};
}

}  // namespace

std::vector<int> gpus_of_lanes(const Plan& plan, LaneRange lanes) {
  std::vector<int> gpus;
  const std::vector<int> all = plan.with_role(Role::kCompute);
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    if (const std::optional<int> gpu = plan.nodes[all[lane]].gpu()) gpus.push_back(*gpu);
  }
  return gpus;
}

int gpus_left(int count, const std::string& chosen) {
  std::istringstream list(chosen);
  std::set<std::string> taken;
  for (std::string entry; std::getline(list, entry, ',');) {
    if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) {
      entry.erase(0, entry.find_first_not_of(' '));
      int number = -1;
      std::from_chars(entry.data(), entry.data() + entry.size(), number);
      if (number < 0 || number >= count) break;
      entry = std::to_string(number);
    }
    if (!taken.insert(entry).second) return 0;
  }
  return std::min(count, static_cast<int>(taken.size()));
}

int visible_gpus() {
  if (const int emulated = emulated_gpus()) return emulated;
  // A container has the device files of its own GPUs only.
  const std::string prefix = "nvidia";
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/dev", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.size() > prefix.size() && name.starts_with(prefix) &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
      ++count;
  }
  const char* const chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  return chosen == nullptr ? count : gpus_left(count, chosen);
}

int usable_gpus() { return emulated_gpus() > 0 || cuda_was_built() ? visible_gpus() : 0; }

std::string device_refusal(const Plan& plan) {
  const std::vector<int> lanes = plan.with_role(Role::kCompute);
  const auto found = std::ranges::find_if(lanes, [&](int lane) { return plan.nodes[lane].gpu().has_value(); });
  if (found == lanes.end()) return "";
  const PlanNode& lane = plan.nodes[*found];
  const std::string instead =
      fmt::format("on virtual devices of the host it runs with --set {}.device=cpu:*", lane.base);
  if (visible_gpus() == 0)
    return fmt::format("{} is to compute on {}, and no GPU is here; {}", lane.id, lane.device, instead);
  if (usable_gpus() == 0)
    return fmt::format("{} is to compute on {}, and lanewise was built without CUDA, which needs nvcc 13 or newer; {}",
                       lane.id, lane.device, instead);
  return "";
}

void load_device_library(const Plan& plan) {
  if (!gpus_of(plan).empty() && emulated_gpus() == 0) load_cuda_library();
}

std::unique_ptr<Accelerator> open_accelerator(const Plan& plan) {
  const std::vector<int> gpus = gpus_of(plan);
  if (gpus.empty()) return nullptr;
  check_switches();
  const int emulated = emulated_gpus();
  check_count(plan, emulated > 0 ? emulated : static_cast<int>(query_gpus().size()));
  return emulated > 0 ? make_emulated_accelerator() : open_cuda_accelerator();
}

void check_gpus_apart(World& world, const Plan& plan, LaneRange own, const Accelerator& accelerator) {
  const auto [name, boot] = this_host();
  const std::vector<int> lanes = plan.with_role(Role::kCompute);
  nlohmann::json here = nlohmann::json::array();
  for (int lane = own.begin; lane < own.end; ++lane) {
    const PlanNode& node = plan.nodes[lanes[lane]];
    here.push_back({{"place", {name, boot, accelerator.address(*node.gpu())}},
                    {"who", fmt::format("{} of rank {} (its {})", node.id, world.rank(), node.device)}});
  }
  struct Owner {
    std::size_t rank;
    std::string who;
  };
  std::map<std::vector<std::string>, Owner> owners;
  const std::vector<std::string> all = world.gather(here.dump());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const nlohmann::json& lane : nlohmann::json::parse(all[rank])) {
      const auto place = lane.at("place").get<std::vector<std::string>>();
      const auto [at, first] = owners.try_emplace(place, Owner{rank, lane.at("who")});
      if (first || at->second.rank == rank) continue;
      throw Error(
          Exit::kDevice,
          fmt::format("{} and {} are on one GPU of {} ({}), and NCCL takes one process a GPU; give each GPUs of "
                      "its own, by the lanes' devices (cuda:*) or each process's CUDA_VISIBLE_DEVICES, or "
                      "start fewer processes",
                      at->second.who, lane.at("who").get<std::string>(), place[0], place[2]));
    }
  }
}

}  // namespace lanewise
