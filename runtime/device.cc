#include "runtime/device.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "graph/error.h"
#include "graph/text.h"
#include "runtime/cuda/device_query.h"
#include "runtime/cuda/library.h"
#include "runtime/devices/emulated.h"

namespace lanewise {
namespace {

constexpr const char* kLibrary = "liblanewise_cuda.so";
constexpr int kMostGpus = 64;

[[noreturn]] void fail(const std::string& why) {
  throw Error(Exit::kDevice,
              fmt::format("no GPU can be used: {}; write \"device\": \"cpu:*\" to compute on the host", why));
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
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail(fmt::format("{} does not load ({})", path, dlerror()));
  return library;
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

}  // namespace

std::vector<int> gpus_of_lanes(const Plan& plan, LaneRange lanes) {
  std::vector<int> gpus;
  const std::vector<int> all = plan.with_role(Role::kCompute);
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    if (const std::optional<int> gpu = plan.nodes[all[lane]].gpu()) gpus.push_back(*gpu);
  }
  return gpus;
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
  if (chosen == nullptr) return count;
  // CUDA takes its entries up to the first that names no device, as -1 does.
  std::istringstream list(chosen);
  int entries = 0;
  for (std::string entry; std::getline(list, entry, ',') && !entry.empty() && entry.front() != '-';) ++entries;
  return std::min(count, entries);
}

int usable_gpus() { return emulated_gpus() > 0 || std::filesystem::exists(library_path()) ? visible_gpus() : 0; }

std::string device_refusal(const Plan& plan) {
  const PlanNode *on_gpu = nullptr, *on_host = nullptr;
  for (const int lane : plan.with_role(Role::kCompute)) {
    const PlanNode& node = plan.nodes[lane];
    const PlanNode*& first = node.gpu() ? on_gpu : on_host;
    if (first == nullptr) first = &node;
  }
  if (on_gpu == nullptr) return "";
  const std::string instead =
      fmt::format("on virtual devices of the host it runs with --set {}.device=cpu:*", on_gpu->base);
  if (on_host != nullptr) {
    return fmt::format("{} is on {} and {} on {}; lanes that train together are all on GPUs, or all on the host; {}",
                       on_gpu->id, on_gpu->device, on_host->id, on_host->device, instead);
  }
  if (visible_gpus() == 0)
    return fmt::format("{} is to compute on {}, and no GPU is here; {}", on_gpu->id, on_gpu->device, instead);
  if (usable_gpus() == 0)
    return fmt::format("{} is to compute on {}, and lanewise was built without CUDA, which needs nvcc 13 or newer; {}",
                       on_gpu->id, on_gpu->device, instead);
  if (!plan.run.buffers.empty()) {
    return fmt::format(
        "run.buffers keeps the statistics of batches on the host, and {} is on {}; normalise each row "
        "(norm \"layer\"), or {}",
        on_gpu->id, on_gpu->device, instead);
  }
  return "";
}

void load_device_library(const Plan& plan) {
  if (!gpus_of(plan).empty() && emulated_gpus() == 0) cuda_library();
}

std::unique_ptr<Accelerator> open_accelerator(const Plan& plan) {
  const std::vector<int> gpus = gpus_of(plan);
  if (gpus.empty()) return nullptr;
  if (emulated_gpus() > 0) return make_emulated_accelerator();
  const std::size_t here = query_gpus().size();
  if (const int last = std::ranges::max(gpus); static_cast<std::size_t>(last) >= here)
    fail(fmt::format("the pipeline has a lane on cuda:{}, and there is {}", last, counted(here, "GPU")));
  return open_cuda_accelerator();
}

std::unique_ptr<Accelerator> open_cuda_accelerator() {
  auto* const make = cuda_function<lanewise_make_accelerator_function>("lanewise_make_accelerator");
  return std::unique_ptr<Accelerator>(make());
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
