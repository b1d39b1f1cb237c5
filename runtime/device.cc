#include "runtime/device.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "graph/error.h"
#include "runtime/cuda/device_query.h"

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

}  // namespace

int visible_gpus() {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error))
    ++count;
  return count;
}

std::string device_refusal(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (!node.device.starts_with("cuda")) continue;
    return fmt::format(
        "{} is to compute on {}, and this version computes on CPU devices only; on virtual ones it runs "
        "with --set {}.device=cpu:*",
        node.id, node.device, node.base);
  }
  return "";
}

std::vector<Gpu> query_gpus() {
  const std::string path = library_path();
  if (!std::filesystem::exists(path))
    fail(fmt::format("{} was not built (it needs nvcc 13 or newer when lanewise is built)", path));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open until the process ends
  if (library == nullptr) fail(fmt::format("{} does not load ({})", path, dlerror()));
  auto* ask = reinterpret_cast<lanewise_cuda_devices_function*>(dlsym(library, "lanewise_cuda_devices"));
  if (ask == nullptr) fail(fmt::format("{} is of another version of lanewise", path));

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
