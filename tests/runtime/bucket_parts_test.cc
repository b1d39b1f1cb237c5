// Which parts a bucket is reduced in, and how a backward tells that they are complete.
#include "runtime/devices/bucket_parts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/devices/gradient_watch.h"
#include "runtime/replica.h"
#include "tests/check.h"

using namespace lanewise;

namespace {

// Of parameters with so many elements, each on a 64-byte boundary: "[begin, end) of p4 p3 + tail", a line each.
std::string parts_of(const std::vector<std::int64_t>& sizes, std::int64_t part_bytes,
                     at::ScalarType dtype = at::kFloat) {
  std::vector<ParameterSpec> specs;
  for (const std::int64_t size : sizes) specs.push_back({.name = "p", .shape = {size}});
  const BucketLayout layout(specs, 4, 2, dtype);
  std::string text;
  for (const BucketPart& part : bucket_parts(layout, static_cast<std::int64_t>(at::elementSize(dtype)), part_bytes)) {
    text += fmt::format("[{}, {}) of", part.begin, part.end);
    for (int i = part.last - 1; i >= part.first; --i) text += fmt::format(" p{}", i);
    text += part.tail ? " + tail\n" : "\n";
  }
  return text;
}

// A leaf of four elements whose gradient is there, as a lane's are.
at::Tensor leaf() {
  at::Tensor it = at::ones({4}).requires_grad_();
  it.mutable_grad() = at::zeros({4});
  return it;
}

}  // namespace

TEST_CASE("bucket parts: the last parameters come first, the tail with the first ones, and nothing is left out") {
  CHECK(parts_of({16, 16, 16, 16, 16}, 128) ==
        "[48, 80) of p4 p3\n"
        "[16, 48) of p2 p1\n"
        "[0, 16) of p0 + tail\n");
  CHECK(parts_of({1, 100, 1}, 64) ==
        "[128, 144) of p2\n"
        "[16, 128) of p1\n"
        "[0, 16) of p0 + tail\n");
  CHECK(parts_of({16, 16, 16}, 128, at::kDouble) ==
        "[32, 48) of p2\n"
        "[16, 32) of p1\n"
        "[0, 16) of p0 + tail\n");
}

TEST_CASE("bucket parts: a model that is not larger than a part has one") {
  CHECK(parts_of({16, 16}, 128) == "[0, 32) of p1 p0 + tail\n");
  CHECK(parts_of({1000}, 1) == "[0, 1008) of p0 + tail\n");
  CHECK(parts_of({}, 1) == "[0, 0) of + tail\n");
  CHECK(parts_of({16, 16}, kPartBytes) == "[0, 32) of p1 p0 + tail\n");
}

TEST_CASE("gradient watch: parts are told in their order within the backward, and those it misses after it") {
  const std::vector<at::Tensor> leaves = {leaf(), leaf(), leaf(), leaf()};
  const std::vector<BucketPart> parts = {
      {.first = 3, .last = 4}, {.first = 2, .last = 3}, {.first = 1, .last = 2}, {.first = 0, .last = 1, .tail = true}};
  std::string told;
  bool backward = false;
  {
    GradientWatch watch(leaves, parts, [&](int part) {
      const bool complete = leaves[parts[part].first].grad().ne(0).all().item<bool>();
      told += fmt::format("{}{}{} ", part, backward ? " within" : " after", complete ? "" : " of zeros");
    });
    const auto round = [&](bool early, const at::Tensor& loss) {
      told.clear();
      for (const at::Tensor& one : leaves) one.mutable_grad().zero_();
      watch.begin(early);
      backward = true;
      loss.sum().backward();
      backward = false;
      watch.end();
      return told;
    };
    const at::Tensor &a = leaves[0], &b = leaves[1], &c = leaves[2], &d = leaves[3];
    CHECK(round(true, a * b * c * d) == "0 within 1 within 2 within ");
    CHECK(round(true, d * c * b * a) == "0 within 1 within 2 within ");  // though p3 is the last to be complete
    CHECK(watch.early() == 6);
    CHECK(round(true, a * c * c * d) == "0 within 1 within 2 after of zeros ");
    CHECK(round(true, a * b * c) == "0 after of zeros 1 after 2 after ");
    CHECK(round(false, a * b * c * d) == "0 after 1 after 2 after ");
    CHECK(watch.early() == 8);
  }
  told.clear();
  (leaves[3] * leaves[2]).sum().backward();
  CHECK(told == "");
}
