#include "runtime/device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "graph/error.h"
#include "graph/text.h"
#include "runtime/cuda/build.h"
#include "runtime/cuda/device_query.h"
#include "runtime/cuda/library.h"
#include "runtime/devices/emulated.h"
#include "runtime/devices/switches.h"
#include "runtime/shared_library.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

constexpr const char* kLibrary = "liblanewise_cuda.so";
constexpr int kMostGpus = 64;

[[noreturn]] void fail(const std::string& why) {
  throw Error(Exit::kDevice,
              fmt::format("no GPU can be used: {}; lanes compute on the host with \"device\": \"cpu:*\", in the "
                          "file or by --set",
                          why));
}

// The library lies beside the executable.
std::string library_path() {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? kLibrary : (executable.parent_path() / kLibrary).string();
}

// Opened once, for the rest of the process: LibTorch's CUDA part, which comes with it, registers itself.
void* cuda_library() {
  static void* library = nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (library != nullptr) return library;
  const std::string path = library_path();
  if (!std::filesystem::exists(path))
    fail(fmt::format("{} was not built (it needs nvcc 13 or newer when lanewise is built)", path));
  return library = open_cuda_library(path);
}

template <class F>
F* cuda_function(const char* name) {
  auto* const found = reinterpret_cast<F*>(dlsym(cuda_library(), name));
  if (found == nullptr) fail(fmt::format("{} is of another version of lanewise", library_path()));
  return found;
}

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

int usable_gpus() { return emulated_gpus() > 0 || std::filesystem::exists(library_path()) ? visible_gpus() : 0; }

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
  if (!gpus_of(plan).empty() && emulated_gpus() == 0) cuda_library();
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

void* open_cuda_library(const std::string& path) {
  void* library = nullptr;
  try {
    library = open_library(path, RTLD_NOW | RTLD_GLOBAL);
  } catch (const Error& error) {
    fail(error.what());
  }
  const auto* const build = static_cast<const char*>(dlsym(library, "lanewise_cuda_build"));
  if (build != nullptr && std::strcmp(build, LANEWISE_CUDA_BUILD) == 0) return library;
  fail(fmt::format("{} is of another build ({}) than this program ({}); build lanewise again", path,
                   build != nullptr ? build : "it does not say which", LANEWISE_CUDA_BUILD));
}

std::unique_ptr<Accelerator> open_cuda_accelerator() {
  auto* const make = cuda_function<lanewise_make_accelerator_function>("lanewise_make_accelerator");
  return std::unique_ptr<Accelerator>(make(waiting_is_error()));
}

std::vector<Gpu> query_gpus() {
  auto* const ask = cuda_function<lanewise_cuda_devices_function>("lanewise_cuda_devices");
  std::vector<lanewise_gpu> found(kMostGpus);
  std::array<char, 512> error{};
  const int count = ask(found.data(), kMostGpus, error.data(), static_cast<int>(error.size()));
  if (count < 0) fail(error.data());
  if (count == 0) fail("there is none");
  std::vector<Gpu> gpus;
  for (int i = 0; i < std::min(count, kMostGpus); ++i) gpus.push_back({found[i].name, found[i].bytes});
  return gpus;
}

}  // namespace lanewise
