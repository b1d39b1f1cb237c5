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

TEST_CASE(
    "device: the GPUs that are visible are those with device files, of which CUDA_VISIBLE_DEVICES may leave fewer") {
  int count = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  const int all = visible_gpus();
  CHECK(all >= count);
  const std::pair<const char*, int> most[] = {
      {"", 0}, {"-1", 0}, {"-1,0", 0}, {"0", 1}, {"0,-1,1,2", 1}, {"GPU-1a2b,MIG-3", 2}, {"0,,1", 1}};
  for (const auto& [chosen, left] : most) {
    ::setenv("CUDA_VISIBLE_DEVICES", chosen, 1);
    CAPTURE(chosen);
    CHECK(visible_gpus() == std::min(all, left));
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::setenv("LANEWISE_EMULATED_GPUS", "3", 1);
  CHECK(visible_gpus() == 3);
  ::setenv("LANEWISE_EMULATED_GPUS", "many", 1);
  CHECK_THROWS(visible_gpus());
  ::unsetenv("LANEWISE_EMULATED_GPUS");
}

}  // namespace
}  // namespace lanewise
