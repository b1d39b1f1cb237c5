// Nodes run by hand (nodes/node_runner.h) in tests: samples in and out as text.
//
//   const Bench bench({{"gen0", constant(), {{"ramp", 1}}}, {"win0", window(), {{"length", 1}}, {"gen0"}}});
//   NodeRunner win(bench, "win0");
//   CHECK(text(*win.fire({Packet::of(make_sample({1}, {2}))}).sample()) == "run 0 seq 0 start | x 1 | y 2");
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "nodes/node_runner.h"
#include "runtime/tensors.h"
#include "tests/check.h"

// A failure shows the lines, one below another.
template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& lines) {
    return fmt::format("\n  {}\n", fmt::join(lines, "\n  ")).c_str();
  }
};

namespace lanewise {

inline Sample make_sample(const std::vector<double>& x, const std::vector<double>& y, std::uint64_t seq = 0,
                          at::ScalarType dtype = at::kFloat) {
  Sample sample;
  sample.x = make_tensor(x, {static_cast<std::int64_t>(x.size())}, dtype);
  sample.y = make_tensor(y, {static_cast<std::int64_t>(y.size())}, dtype);
  sample.tag.seq = seq;
  sample.tag.start = seq == 0;
  return sample;
}

inline std::string text(const at::Tensor& tensor) {
  std::vector<std::string> values;
  for (const double v : tensor_values(tensor)) values.push_back(fmt::format("{:.6g}", v));
  return fmt::format("{}", fmt::join(values, " "));
}

// "run 0 seq 1 weight 0 | x 1 2 | y 3 | known 4"
inline std::string text(const Sample& sample) {
  std::string all = text(sample.tag) + " | x " + text(sample.x) + " | y " + text(sample.y);
  if (sample.known.defined()) all += " | known " + text(sample.known);
  return all;
}

inline std::vector<std::string> texts(const std::vector<Sample>& samples) {
  std::vector<std::string> lines;
  for (const Sample& s : samples) lines.push_back(text(s));
  return lines;
}

// The same tag and the same bits.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, true)));
}
inline bool same(const Sample& a, const Sample& b) {
  return text(a.tag) == text(b.tag) && same(a.x, b.x) && same(a.y, b.y) && same(a.known, b.known);
}

// The problems of a bench as "parameter: rule", the exit code in brackets where it is not the usual one.
inline std::vector<std::string> rules_of(const std::vector<Problem>& problems) {
  std::vector<std::string> rules;
  for (const Problem& p : problems)
    rules.push_back(p.rule + (p.exit == Exit::kPipeline ? "" : fmt::format(" [{}]", static_cast<int>(p.exit))));
  return rules;
}

// What a call throws, as "CODE: message"; "" when it throws no Error.
template <class F>
std::string error_of(const F& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return fmt::format("{}: {}", static_cast<int>(error.exit()), error.what());
  }
}

// A file that lives as long as this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : folder_((std::filesystem::temp_directory_path() / "lanewise-XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
    std::ofstream(path(), std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/data.csv"; }
  // A text with the path replaced by "FILE".
  std::string masked(std::string message) const {
    for (std::size_t at; (at = message.find(path())) != std::string::npos;) message.replace(at, path().size(), "FILE");
    return message;
  }

 private:
  std::string folder_;
};

}  // namespace lanewise
