#include "runtime/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/check.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

// A folder that is gone afterwards.
struct Folder {
  Folder() {
    std::string text = (std::filesystem::temp_directory_path() / "safetensors_test.XXXXXX").string();
    path = ::mkdtemp(text.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }

  std::string path;
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<NamedTensor> some_tensors() {
  return {{"net.weight", at::arange(6, at::kFloat).view({2, 3})},
          {"net.bias", at::arange(3, at::kFloat).mul(0.5)},
          {"step", at::tensor({std::int64_t{1} << 53}, at::kLong)},
          {"mean", at::tensor({0.1, -1e300}, at::kDouble)},
          {"empty", at::empty({0, 4}, at::kFloat)}};
}

}  // namespace

TEST_CASE("safetensors: a file is its header's length, the header and the tensors' bytes, wider dtypes first") {
  const Folder folder;
  write_safetensors(folder / "w", some_tensors(), {{"step", "7"}});
  const std::string text = read(folder / "w");
  const std::string header = R"({"__metadata__":{"step":"7"},"step":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                             R"("mean":{"dtype":"F64","shape":[2],"data_offsets":[8,24]},)"
                             R"("net.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[24,48]},)"
                             R"("net.bias":{"dtype":"F32","shape":[3],"data_offsets":[48,60]},)"
                             R"("empty":{"dtype":"F32","shape":[0,4],"data_offsets":[60,60]}})";
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  CHECK(length % 8 == 0);
  REQUIRE(text.size() == 8 + length + 60);
  CHECK(text.substr(8, header.size()) == header);
  CHECK(text.find_first_not_of(' ', 8 + header.size()) >= 8 + length);
  const auto weight = reinterpret_cast<const float*>(text.data() + 8 + length + 24);
  CHECK(weight[5] == 5);
}

TEST_CASE("safetensors: the same tensors give the same file, a transposed view its own values") {
  const Folder folder;
  write_safetensors(folder / "a", some_tensors());
  write_safetensors(folder / "b", some_tensors());
  CHECK(read(folder / "a") == read(folder / "b"));

  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  write_safetensors(folder / "c", std::vector<NamedTensor>{{"m", matrix.t()}});
  write_safetensors(folder / "d", std::vector<NamedTensor>{{"m", matrix.t().contiguous()}});
  CHECK(read(folder / "c") == read(folder / "d"));
}

TEST_CASE("safetensors: Python's safetensors reads what was written") {
  const std::string python = std::filesystem::absolute(".venv/bin/python").string();
  REQUIRE(std::filesystem::exists(python));
  const Folder folder;
  write_safetensors(folder / "w", some_tensors(), {{"step", "7"}});
  const std::string script =
      "import sys\n"
      "from safetensors import safe_open\n"
      "f = safe_open(sys.argv[1], 'np')\n"
      "print(f.metadata(), *(f'{k} {f.get_tensor(k).dtype} {f.get_tensor(k).tolist()}' for k in sorted(f.keys())), "
      "sep='\\n')\n";
  std::ofstream(folder / "read.py") << script;
  const std::string command =
      fmt::format("{} {} {} > {} 2>&1", python, folder / "read.py", folder / "w", folder / "out");
  CHECK(std::system(command.c_str()) == 0);
  CHECK(read(folder / "out") ==
        "{'step': '7'}\n"
        "empty float32 []\n"
        "mean float64 [0.1, -1e+300]\n"
        "net.bias float32 [0.0, 0.5, 1.0]\n"
        "net.weight float32 [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]\n"
        "step int64 [9007199254740992]\n");
}

TEST_CASE("safetensors: a full disk is an error that names file and reason, and the old file stays") {
  const Folder folder;
  write_safetensors(folder / "w", some_tensors());
  const std::string before = read(folder / "w");
  std::filesystem::create_symlink("/dev/full", folder / "w.tmp");
  CHECK(error_of([&] { write_safetensors(folder / "w", some_tensors()); }) ==
        fmt::format("6: cannot write {}.tmp: No space left on device", folder / "w"));
  CHECK(read(folder / "w") == before);
  CHECK_FALSE(std::filesystem::exists(std::filesystem::symlink_status(folder / "w.tmp")));
}

TEST_CASE("safetensors: a write that stops half-way leaves no file behind") {
  const Folder folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<NamedTensor> large = {{"w", at::zeros({10'000})}};
  const std::string message = error_of([&] { write_safetensors(folder / "w", large); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  CHECK(message.find("File too large") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("safetensors: a folder that is not there, a dtype and a name twice are refused") {
  const Folder folder;
  CHECK(error_of([&] { write_safetensors(folder / "no/w", some_tensors()); }) ==
        fmt::format("6: cannot create {}.tmp: No such file or directory", folder / "no/w"));
  CHECK(error_of([&] {
          write_safetensors(folder / "w", std::vector<NamedTensor>{{"m", at::zeros({1}, at::kBool)}});
        }) == "70: m has a dtype that is not written");
  const std::vector<NamedTensor> twice = {{"m", at::zeros({1})}, {"m", at::zeros({1})}};
  CHECK(error_of([&] { write_safetensors(folder / "w", twice); }) == "70: two tensors are called m");
}
