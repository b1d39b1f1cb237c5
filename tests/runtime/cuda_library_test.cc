#include "runtime/cuda_library.h"

#include <cstdlib>
#include <filesystem>

#include "graph/error.h"
#include "runtime/device.h"
#include "tests/check.h"
#include "tests/runtime/errors.h"

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
    "cuda library: without the CUDA library no GPU can be used; with it, GPUs are named or it is said why there is "
    "none") {
  const fs::path library = fs::read_symlink("/proc/self/exe").parent_path() / "liblanewise_cuda.so";
  const std::string said = refusal();
  const std::string begin = "no GPU can be used: ",
                    end = "; lanes compute on the host with \"device\": \"cpu:*\", in the file or by --set";
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

TEST_CASE("cuda library: one of another build is refused before anything of it is called") {
  const std::string other = fs::read_symlink("/proc/self/exe").parent_path() / "libother_cuda.so";
  const std::string end =
      "); build lanewise again; lanes compute on the host with \"device\": \"cpu:*\", in the file or by --set";
  const std::string refused = error_of([&] { open_cuda_library(other); });
  CAPTURE(refused);
  CHECK(refused.starts_with(
      fmt::format("9: no GPU can be used: {} is of another build (lanewise 0.0.1, LibTorch 2.0.0, interface "
                  "0123456789ab) than this program (lanewise ",
                  other)));
  CHECK(refused.ends_with(end));
  const std::string unsaid = error_of([&] { open_cuda_library(std::getenv("FAKE_NCCL")); });
  CAPTURE(unsaid);
  CHECK(unsaid.find(" is of another build (it does not say which) than this program (lanewise ") != std::string::npos);
}

}  // namespace
}  // namespace lanewise
