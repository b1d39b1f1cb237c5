#include "runtime/device.h"

#include "graph/error.h"
#include "tests/check.h"

namespace lanewise {

TEST_CASE("device: the CUDA library names the GPUs, or the error says why there is none and what to write") {
  try {
    const std::vector<Gpu> gpus = query_gpus();
    REQUIRE(!gpus.empty());
    for (const Gpu& gpu : gpus) {
      CHECK(gpu.name != "");
      CHECK(gpu.bytes > 0);
    }
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::kDevice);
    CHECK(std::string(error.what()).starts_with("no GPU can be used: "));
    CHECK(std::string(error.what()).ends_with("write \"device\": \"cpu:*\" to compute on the host"));
    CHECK(visible_gpus() >= 0);
  }
}

}  // namespace lanewise
