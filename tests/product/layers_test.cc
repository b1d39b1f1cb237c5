// The layers of the source tree: each folder includes only itself and the folders before it.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kLayers = {"graph", "runtime", "nodes", "tools"};

// Calls visit(file, included) for every #include of a layer's sources.
void for_each_include(const std::string& layer,
                      const std::function<void(const std::string&, const std::string&)>& visit) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(layer)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cc" && extension != ".cu") continue;
    ++files;
    for (const std::string& line : lines_of(read_text(entry.path().string()))) {
      if (!line.starts_with("#include ")) continue;
      const std::size_t begin = line.find_first_of("<\"") + 1;
      visit(entry.path().string(), line.substr(begin, line.find_first_of(">\"", begin) - begin));
    }
  }
  REQUIRE(files > 0);
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) { return text.starts_with(part); });
}

}  // namespace

TEST_CASE("layers: a folder includes only itself and the folders before it") {
  for (std::size_t i = 0; i < kLayers.size(); ++i) {
    for_each_include(kLayers[i], [&](const std::string& file, const std::string& included) {
      for (std::size_t later = i + 1; later < kLayers.size(); ++later) {
        CHECK_MESSAGE(!included.starts_with(kLayers[later] + "/"), file << " includes " << included);
      }
      CHECK_MESSAGE(!included.starts_with("tests/"), file << " includes " << included);
    });
  }
}

TEST_CASE(
    "layers: graph knows no tensor, CUDA is known in runtime/cuda and runtime/nccl only, oneTBB in the flow only") {
  for (const std::string& layer : kLayers) {
    for_each_include(layer, [&](const std::string& file, const std::string& included) {
      if (layer == "graph")
        CHECK_MESSAGE(!begins_with_any(included, {"torch/", "ATen/", "c10/"}), file << " includes " << included);
      if (!begins_with_any(file, {"runtime/cuda/", "runtime/nccl/"})) {
        CHECK_MESSAGE(!begins_with_any(included, {"cuda", "nccl", "cublas", "cudnn"}),
                      file << " includes " << included);
      }
      const bool version_only = included == "oneapi/tbb/version.h";
      const bool flow =
          begins_with_any(file, {"graph/edge.", "graph/stage.", "graph/flow.", "graph/core.", "tools/benchmarks/"});
      if (!flow && !version_only) {
        CHECK_MESSAGE(!begins_with_any(included, {"oneapi/tbb", "tbb/"}), file << " includes " << included);
      }
    });
  }
}

}  // namespace lanewise
