#include "runtime/device.h"

#include <filesystem>

#include "graph/error.h"
#include "tests/check.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

// What query_gpus() answers: "" when it names GPUs, else its error.
std::string refusal() {
  try {
    const std::vector<Gpu> gpus = query_gpus();
    CHECK_FALSE(gpus.empty());
    for (const Gpu& gpu : gpus) {
      CHECK(gpu.name != "");
      CHECK(gpu.bytes > 0);
    }
    return "";
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::kDevice);
    return error.what();
  }
}

TEST_CASE(
    "device: without the CUDA library no GPU can be used; with it, GPUs are named or it is said why there is none") {
  const fs::path library = fs::read_symlink("/proc/self/exe").parent_path() / "liblanewise_cuda.so";
  const std::string said = refusal();
  const std::string begin = "no GPU can be used: ", end = "; write \"device\": \"cpu:*\" to compute on the host";
  if (!fs::exists(library)) {
    CHECK(said == begin + library.string() + " was not built (it needs nvcc 13 or newer when lanewise is built)" + end);
  } else if (visible_gpus() == 0) {
    REQUIRE(said.starts_with(begin));
    CHECK(said.ends_with(end));
    CHECK(said.find("was not built") == std::string::npos);
  } else if (!said.empty()) {  // a driver may be older than the library, or hide its GPUs
    CHECK(said.starts_with(begin));
    CHECK(said.find("was not built") == std::string::npos);
  }
}

TEST_CASE("device: the GPUs that are visible are those that the driver shows") {
  const fs::path shown = "/proc/driver/nvidia/gpus";
  int count = 0;
  if (fs::exists(shown)) {
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(shown)) ++count;
  }
  CHECK(visible_gpus() == count);
}

}  // namespace
}  // namespace lanewise
