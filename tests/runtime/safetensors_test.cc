#include "runtime/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

// A folder that is gone afterwards.
struct Folder : TemporaryFolder {
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
};

std::vector<NamedTensor> some_tensors() {
  return {{"net.weight", at::arange(6, at::kFloat).view({2, 3})},
          {"net.bias", at::arange(3, at::kFloat).mul(0.5)},
          {"step", at::tensor({std::int64_t{1} << 53}, at::kLong)},
          {"mean", at::tensor({0.1, -1e300}, at::kDouble)},
          {"empty", at::empty({0, 4}, at::kFloat)}};
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  text += header;
  for (std::size_t i = 0; i < data; ++i) text += static_cast<char>(i + 1);
  return text;
}

// What read_safetensors says of it, without code and path.
std::string refusal(const Folder& folder, const std::string& text) {
  write_text(folder / "w", text);
  const std::string message = error_of([&] { read_safetensors(folder / "w"); });
  const std::string prefix = fmt::format("6: {}: ", folder / "w");
  return message.starts_with(prefix) ? message.substr(prefix.size()) : "?? " + message;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 ||
          std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

TEST_CASE("safetensors: a file is its header's length, the header and the tensors' bytes, wider dtypes first") {
  const Folder folder;
  write_safetensors(folder / "w", some_tensors(), {{"step", "7"}});
  const std::string text = read_text(folder / "w");
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
  CHECK(read_text(folder / "a") == read_text(folder / "b"));

  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  write_safetensors(folder / "c", std::vector<NamedTensor>{{"m", matrix.t()}});
  write_safetensors(folder / "d", std::vector<NamedTensor>{{"m", matrix.t().contiguous()}});
  CHECK(read_text(folder / "c") == read_text(folder / "d"));
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
  write_text(folder / "read.py", script);
  const std::string command =
      fmt::format("{} {} {} > {} 2>&1", python, folder / "read.py", folder / "w", folder / "out");
  CHECK(std::system(command.c_str()) == 0);
  CHECK(read_text(folder / "out") ==
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
  const std::string before = read_text(folder / "w");
  std::filesystem::create_symlink("/dev/full", folder / "w.tmp");
  CHECK(error_of([&] { write_safetensors(folder / "w", some_tensors()); }) ==
        fmt::format("6: cannot write {}.tmp: No space left on device", folder / "w"));
  CHECK(read_text(folder / "w") == before);
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
  CHECK(std::filesystem::is_empty(folder.path()));
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

TEST_CASE(
    "safetensors: what was written is read back bit for bit, with NaNs, -0, scalars and tensors without elements") {
  const Folder folder;
  std::vector<NamedTensor> tensors = some_tensors();
  tensors.push_back({"odd", at::tensor({std::nanf("0x123"), -0.0f, INFINITY, 1e-45f})});
  tensors.push_back({"scalar", at::scalar_tensor(-2.5, at::kDouble)});
  tensors.push_back({"bytes", at::arange(7, at::kByte)});
  tensors.push_back({"größe \"q\" \n", at::arange(6, at::kLong).view({3, 2}).t()});
  tensors.push_back({"none", at::empty({3, 0, 2}, at::kByte)});
  const std::map<std::string, std::string> metadata = {{"step", "7"}, {"", "a \"b\""}};
  write_safetensors(folder / "w", tensors, metadata);
  const SafeTensors read = read_safetensors(folder / "w");
  CHECK(read.metadata == metadata);
  REQUIRE(read.tensors.size() == tensors.size());
  for (const NamedTensor& named : tensors) {
    CAPTURE(named.name);
    REQUIRE(read.find(named.name) != nullptr);
    CHECK(same_bits(*read.find(named.name), named.tensor));
  }
  CHECK(read.find("nothing") == nullptr);

  write_safetensors(folder / "again", read.tensors, metadata);
  write_safetensors(folder / "empty", {});
  CHECK(read_safetensors(folder / "again").tensors.front().name == read.tensors.front().name);
  CHECK(read_safetensors(folder / "empty").tensors.empty());
}

TEST_CASE("safetensors: files of others are read too: more dtypes, any order of keys, space behind the header") {
  const Folder folder;
  write_text(folder / "w", file_of(R"({"h":{"shape":[1],"dtype":"F16","data_offsets":[3,5]},)"
                                   R"("c":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)"
                                   R"("b":{"data_offsets":[5,9],"dtype":"BF16","shape":[2,1]},)"
                                   R"("s":{"dtype":"I16","shape":[],"data_offsets":[9,11]},)"
                                   R"("i":{"dtype":"I32","shape":[1],"data_offsets":[11,15]}}   )",
                                   15));
  const SafeTensors read = read_safetensors(folder / "w");
  std::vector<std::string> names;
  for (const NamedTensor& named : read.tensors) names.push_back(named.name);
  CHECK(names == std::vector<std::string>{"c", "h", "b", "s", "i"});
  CHECK(at::equal(*read.find("c"), at::tensor({1, 2, 3}, at::kChar)));
  CHECK((read.find("h")->scalar_type() == at::kHalf));
  CHECK(read.find("b")->sizes() == at::IntArrayRef({2, 1}));
  CHECK(read.find("s")->item<int>() == 0x0b0a);
  CHECK(read.find("i")->item<int>() == 0x0f0e0d0c);
}

TEST_CASE("safetensors: every rule that a header can break has a message") {
  const Folder folder;
  const auto entry = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "\"F32\"") {
    return fmt::format(R"("dtype":{},"shape":{},"data_offsets":{})", dtype, shape, offsets);
  };
  const auto one = [&](const std::string& shape, const std::string& offsets, const std::string& dtype = "\"F32\"") {
    return fmt::format(R"({{"a":{{{}}}}})", entry(shape, offsets, dtype));
  };
  const auto two = [&](const std::string& a, const std::string& b) {
    return fmt::format(R"({{"a":{{{}}},"b":{{{}}}}})", entry("[2]", a), entry("[2]", b));
  };
  std::string deep;
  for (int i = 0; i < 64; ++i) deep += R"({"a":)";
  const struct {
    std::string header;
    std::size_t data;
    std::string rule;
  } cases[] = {
      {one("[2]", "[0,8]"), 8, "?? "},
      {"", 0, "the header: is no JSON object: it does not begin with {"},
      {"[]", 0, "the header: is no JSON object: it does not begin with {"},
      {"\xef\xbb\xbf{}", 0, "the header: is no JSON object: it does not begin with {"},
      {deep + "[1" + "]" + std::string(64, '}'), 0, "the header: is nested deeper than 64"},
      {R"({"a":{},"a":{}})", 0, R"(the header: has the key "a" twice)"},
      {R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, R"(the header: has the key "dtype" twice)"},
      {R"({"__metadata__":{"k":"1","k":"1"}})", 0, R"(the header: has the key "k" twice)"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"k":1}})", 0, R"(__metadata__: the value of "k" is not a string)"},
      {R"({"a":3})", 0, R"(tensor "a": is not an object of dtype, shape and data_offsets)"},
      {R"({"a":{"dtype":"F32","shape":[]}})", 0, R"(tensor "a": is not an object of dtype, shape and data_offsets)"},
      {fmt::format(R"({{"a":{{{},"x":1}}}})", entry("[2]", "[0,8]")), 8,
       R"(tensor "a": is not an object of dtype, shape and data_offsets)"},
      {one("[2]", "[0,8]", "\"F8_E5M2\""), 8, R"(tensor "a": dtype "F8_E5M2" is not one that is read here)"},
      {one("[2]", "[0,8]", "7"), 8, R"(tensor "a": dtype 7 is not one that is read here)"},
      {one("2", "[0,8]"), 8, R"(tensor "a": shape is not a list)"},
      {one("[-2]", "[0,8]"), 8, R"(tensor "a": shape has -2 where a size belongs)"},
      {one("[2.0]", "[0,8]"), 8, R"(tensor "a": shape has 2.0 where a size belongs)"},
      {one("[true]", "[0,8]"), 8, R"(tensor "a": shape has true where a size belongs)"},
      {one("[\"2\"]", "[0,8]"), 8, R"(tensor "a": shape has "2" where a size belongs)"},
      {one("[9223372036854775808]", "[0,8]"), 8, R"(tensor "a": shape has more elements than can be counted)"},
      {one("[4294967296,4294967296]", "[0,0]"), 0, R"(tensor "a": shape has more elements than can be counted)"},
      {one("[4294967296,4294967296,0]", "[0,0]"), 0, R"(tensor "a": shape has more elements than can be counted)"},
      {one("[2305843009213693952]", "[0,0]"), 0, R"(tensor "a": shape has more elements than can be counted)"},
      {one("[2]", "8"), 8, R"(tensor "a": data_offsets is not a list of two byte positions)"},
      {one("[2]", "[0]"), 8, R"(tensor "a": data_offsets is not a list of two byte positions)"},
      {one("[2]", "[0,8,8]"), 8, R"(tensor "a": data_offsets is not a list of two byte positions)"},
      {one("[2]", "[-8,0]"), 8, R"(tensor "a": data_offsets is not a list of two byte positions)"},
      {one("[2]", "[0,8.0]"), 8, R"(tensor "a": data_offsets is not a list of two byte positions)"},
      {one("[2]", "[8,0]"), 8, R"(tensor "a": its bytes end at 0, before they begin at 8)"},
      {one("[2]", "[0,8]"), 7, R"(tensor "a": its bytes end at 8, but there are 7 bytes of data)"},
      {one("[2]", "[18446744073709551608,18446744073709551615]"), 8,
       R"(tensor "a": its bytes end at 18446744073709551615, but there are 8 bytes of data)"},
      {one("[3]", "[0,8]"), 8, R"(tensor "a": has 8 bytes where F32 [3] takes 12)"},
      {one("[0,3]", "[0,8]"), 8, R"(tensor "a": has 8 bytes where F32 [0, 3] takes 0)"},
      {two("[0,8]", "[4,12]"), 12, R"(tensor "b": its bytes begin at 4, inside another tensor's)"},
      {two("[0,8]", "[0,8]"), 8, R"(tensor "b": its bytes begin at 0, inside another tensor's)"},
      {two("[0,8]", "[12,20]"), 20, "bytes 8 to 12 belong to no tensor"},
      {one("[2]", "[4,12]"), 12, "bytes 0 to 4 belong to no tensor"},
      {one("[2]", "[0,8]"), 9, "bytes 8 to 9 belong to no tensor"},
      {"{}", 1, "bytes 0 to 1 belong to no tensor"},
  };
  for (const auto& [header, data, rule] : cases) {
    CAPTURE(header);
    CHECK(refusal(folder, file_of(header, data)) == rule);
  }
  for (const char* header :
       {"{", "{}}", "{} x", "{\"a\":1,}", "{\"a\":\"\xff\"}", "{\"a\":1e999}", "{/**/}", "{\"a\":NaN}"}) {
    CAPTURE(header);
    CHECK(refusal(folder, file_of(header, 0)).starts_with("the header: is not JSON: "));
  }
}

TEST_CASE("safetensors: a length that the file cannot have, and what is no regular file, are refused") {
  const Folder folder;
  const auto length = [](std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); };
  CHECK(refusal(folder, "") == "has 0 bytes, too few for a safetensors file");
  CHECK(refusal(folder, "1234567") == "has 7 bytes, too few for a safetensors file");
  CHECK(refusal(folder, length(3) + "{}") == "the header of 3 bytes does not fit into a file of 10 bytes");
  CHECK(refusal(folder, length(~std::uint64_t{0}) + "{}") ==
        "a header of 18446744073709551615 bytes is longer than the 100000000 it may be");
  CHECK(error_of([&] { read_safetensors(folder / "no"); }) ==
        fmt::format("6: cannot open {}: No such file or directory", folder / "no"));
  CHECK(error_of([&] { read_safetensors(folder.path()); }) ==
        fmt::format("6: {} is not a regular file", folder.path()));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(error_of([&] { read_safetensors(folder / "pipe"); }) ==
        fmt::format("6: {} is not a regular file", folder / "pipe"));
}

TEST_CASE("safetensors: a file cut anywhere is refused") {
  const Folder folder;
  write_safetensors(folder / "whole", some_tensors());
  const std::string whole = read_text(folder / "whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(refusal(folder, whole.substr(0, size)).starts_with("??"));
  }
}

TEST_CASE("safetensors: of a file with wrong bytes in its header only an Error comes, or tensors that fit") {
  const Folder folder;
  write_safetensors(folder / "whole", some_tensors(), {{"step", "7"}});
  const std::string whole = read_text(folder / "whole");
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole;
    for (std::uint64_t n = random() % 3 + 1; n > 0; --n) {
      text[random() % (whole.size() - 60)] = "09-.eE[]{}\",:x\\ \x80"[random() % 18];
    }
    write_text(folder / "w", text);
    try {
      std::size_t bytes = 0;
      for (const NamedTensor& named : read_safetensors(folder / "w").tensors) bytes += named.tensor.nbytes();
      CHECK(bytes <= text.size());
    } catch (const Error& error) {
      ++refused;
      CHECK(error.exit() == Exit::kCheckpoint);
    }
  }
  CHECK(refused > 1000);
}
