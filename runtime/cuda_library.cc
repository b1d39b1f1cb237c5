#include "runtime/cuda_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "graph/error.h"
#include "runtime/cuda/build.h"
#include "runtime/cuda/device_query.h"
#include "runtime/cuda/library.h"
#include "runtime/devices/queue.h"
#include "runtime/devices/switches.h"
#include "runtime/shared_library.h"

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

}  // namespace

bool cuda_was_built() { return std::filesystem::exists(library_path()); }
void load_cuda_library() { cuda_library(); }

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
