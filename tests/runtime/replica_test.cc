#include "runtime/replica.h"

#include <ATen/ATen.h>

#include "graph/sha256.h"
#include "runtime/optimizer_ops.h"
#include "tests/check.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/models.h"

using namespace lanewise;

namespace {

Replicas replicas(int lanes, bool per_device, at::ScalarType dtype = at::kFloat, std::uint64_t seed = 7) {
  return Replicas(
      [] {
        return model_type("mlp").make({{"hidden", {5}}}, {3}, {1});
      },
      "net",
      {.dtype = dtype, .domains = domains(per_device, lanes), .lanes = lanes, .streams = 2 * lanes, .seed = seed});
}

void step(Replicas& r, int domain, bool mark) {
  OptimizerParams params;
  params.name = "adamw";
  const auto optimizer = make_flat_optimizer(params, r.weights(domain));
  optimizer->step(r.weights(domain), at::ones_like(r.weights(domain)), 0.1);
  if (mark) r.mark_changed(domain);
}

}  // namespace

TEST_CASE("replica: a bucket holds each parameter on a 64-byte boundary, then the tail") {
  const std::vector<ParameterSpec> specs = {{"a", {17}, 1}, {"b", {2, 8}, 1}, {"c", {1}, 1}};
  const BucketLayout narrow(specs, 3, 2, at::kFloat), wide(specs, 3, 2, at::kDouble);
  CHECK(narrow.offsets == std::vector<std::int64_t>{0, 32, 48});
  CHECK(narrow.parameters == 64);
  CHECK(wide.offsets == std::vector<std::int64_t>{0, 24, 40});
  CHECK(wide.parameters == 48);
  CHECK(narrow.loss_at(0) == 64);
  CHECK(narrow.weight_at(2) == 69);
  CHECK(narrow.flag_at(0, Flag::kEnded) == 70);
  CHECK(narrow.flag_at(1, Flag::kStop) == 77);
  CHECK(narrow.size() == 78);
}

TEST_CASE("replica: weights and buckets begin on 64-byte boundaries and padding is zero") {
  Replicas r = replicas(2, true);
  for (int lane = 0; lane < 2; ++lane) {
    CHECK(reinterpret_cast<std::uintptr_t>(r.weights(lane).const_data_ptr()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(r.bucket(lane).const_data_ptr()) % 64 == 0);
  }
  CHECK(r.layout().parameters == 16 + 16 + 16 + 16);  // 15, 5, 5 and 1 of them used
  CHECK(at::count_nonzero(r.weights(0)).item<std::int64_t>() == 15 + 5 + 5 + 1);
}

TEST_CASE(
    "replica: initial weights depend on the seed, not on lanes, domains or other parameters, and keep the bound") {
  const Replicas one = replicas(1, false), many = replicas(8, true), other = replicas(1, false, at::kFloat, 8);
  for (int domain = 0; domain < 8; ++domain) CHECK(many.weights_sha256(domain) == one.weights_sha256());
  CHECK(other.weights_sha256() != one.weights_sha256());

  const Replicas wide = replicas(1, false, at::kDouble);
  for (int i = 0; i < 4; ++i) {
    CHECK(at::equal(one.parameter(i), wide.parameter(i).to(at::kFloat)));
    CHECK(one.parameter(i).abs().max().item<double>() <= one.specs()[i].bound);
    CHECK(one.parameter(i).sizes() == at::IntArrayRef(one.specs()[i].shape));
  }
  // The first layer of a model with another width behind it: the same numbers.
  const Replicas deeper([] { return model_type("mlp").make({{"hidden", {5, 4}}}, {3}, {1}); }, "net", {.seed = 7});
  CHECK(at::equal(deeper.parameter(0), one.parameter(0)));
}

TEST_CASE("replica: with shared weights every lane reads one copy, with per_device its own") {
  Replicas shared = replicas(3, false), own = replicas(3, true);
  CHECK(shared.domain_count() == 1);
  CHECK(own.domain_count() == 3);
  for (int lane = 0; lane < 3; ++lane) {
    CHECK(shared.leaves(lane)[0].const_data_ptr() == shared.weights(0).const_data_ptr());
    CHECK(own.leaves(lane)[0].const_data_ptr() == own.weights(lane).const_data_ptr());
  }
}

TEST_CASE("replica: gradients add up in the lane's bucket and stay views of it") {
  Replicas r = replicas(2, false, at::kDouble);
  const at::Tensor x = at::ones({1, 2, 3}, at::kDouble);
  for (int round = 0; round < 2; ++round) predict(r.model(1), x).sum().backward();
  for (std::size_t i = 0; i < r.leaves(1).size(); ++i) {
    const at::Tensor& gradient = r.leaves(1)[i].grad();
    CHECK(gradient.const_data_ptr() == r.bucket(1).const_data_ptr<double>() + r.layout().offsets[i]);
  }
  // d/db of the last layer's bias: two rows, two rounds.
  CHECK(r.bucket(1)[r.layout().offsets[3]].item<double>() == 4);
  CHECK(at::count_nonzero(r.bucket(0)).item<std::int64_t>() == 0);
  CHECK(at::count_nonzero(r.bucket(1).narrow(0, r.layout().parameters, r.layout().size() - r.layout().parameters))
            .item<std::int64_t>() == 0);
  r.bucket(1).zero_();
  CHECK(at::count_nonzero(r.leaves(1)[0].grad()).item<std::int64_t>() == 0);
}

TEST_CASE("replica: a backward across an optimizer step raises") {
  for (const bool per_device : {false, true}) {
    Replicas r = replicas(2, per_device);
    const at::Tensor before = predict(r.model(1), at::ones({1, 2, 3})).sum();
    step(r, per_device ? 1 : 0, /*mark=*/true);
    CHECK_THROWS_WITH_AS(before.backward(), doctest::Contains("modified by an inplace operation"), c10::Error);
    predict(r.model(1), at::ones({1, 2, 3})).sum().backward();
  }
}

TEST_CASE("replica: only mark_changed tells autograd of a fused step") {
  Replicas r = replicas(1, false);
  const auto version = r.weights(0)._version();
  step(r, 0, /*mark=*/false);
  CHECK(r.weights(0)._version() == version);
  // Without the mark, this backward would go through with the new weights in place of those of the forward.
  const at::Tensor before = predict(r.model(0), at::ones({1, 2, 3})).sum();
  step(r, 0, /*mark=*/false);
  CHECK_NOTHROW(before.backward());
}

TEST_CASE("replica: the digest is over the parameters' bytes in order, without padding") {
  const Replicas r = replicas(1, false);
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor p = r.parameter(i).contiguous();
    bytes.append(static_cast<const char*>(p.const_data_ptr()), p.nbytes());
  }
  CHECK(r.weights_sha256() == sha256_hex(bytes));
}

TEST_CASE("replica: verify names the first tensor in which two memory domains differ") {
  Replicas r = replicas(3, /*per_device=*/true);
  r.verify();
  r.weights(2)[r.layout().offsets[1]] += 1;
  CHECK(error_of([&] { r.verify(); }) ==
        "9: the copies of the weights have come apart: 0.bias of memory domain 2 differs from that of domain 0; a "
        "device or its "
        "memory has failed");
  replicas(3, /*per_device=*/false).verify();
}
