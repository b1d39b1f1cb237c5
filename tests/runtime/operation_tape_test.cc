#include "runtime/devices/operation_tape.h"

#include <ATen/ATen.h>

#include "tests/check.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

TEST_CASE("operation tape: nothing is done while it is made, and each replay does all again on the same tensors") {
  at::Tensor x = at::ones({3}), sum = at::zeros({3}), sums = at::zeros({2, 3});
  const OperationTape tape([&] {
    sum.add_(x);
    const at::Tensor twice = sum * 2;
    at::add_out(sums.select(0, 0).unsqueeze_(0), twice.unsqueeze(0), x);
    sums[1].copy_(twice.exp());
    std::vector<at::Tensor> rows = sums.unbind();
    at::_foreach_add_(rows, 1);
  });
  CHECK(sum.equal(at::zeros({3})));
  CHECK(sums.equal(at::zeros({2, 3})));
  for (int i = 1; i <= 3; ++i) {
    x.fill_(i);
    const at::Tensor sum_then = sum + i;
    tape.replay();
    CHECK(sum.equal(sum_then));
    CHECK(sums[0].equal(sum_then * 2 + i + 1));
    CHECK(sums[1].equal((sum_then * 2).exp() + 1));
  }
}

TEST_CASE("operation tape: a backward is replayed, its gradients added to where they are") {
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3}), gradient = at::zeros({3});
  at::Tensor weight = at::tensor({0.5F, -1.0F, 2.0F}).set_requires_grad(true);
  weight.mutable_grad() = gradient;
  const auto work = [&] {
    gradient.zero_();
    at::tanh(at::mv(x, weight)).sum().backward();
  };
  work();
  const OperationTape tape(work);
  for (int i = 0; i < 3; ++i) {
    x.add_(0.125);
    const at::NoGradGuard no_gradient;
    weight.mul_(0.75);
    tape.replay();
    const at::Tensor replayed = gradient.clone();
    const at::AutoGradMode gradients(true);
    work();
    CHECK(replayed.equal(gradient));
    CHECK(gradient.abs().sum().item<float>() > 0);
  }
}

TEST_CASE("operation tape: what was read from the host stays as it was") {
  at::Tensor x = at::ones({2});
  double factor = 3;
  const OperationTape tape([&] { x.mul_(factor); });
  factor = 100;
  tape.replay();
  CHECK(x.equal(at::full({2}, 3.0F)));
}

TEST_CASE("operation tape: what waits for a value is refused by its name, and the work goes on as before") {
  at::Tensor x = at::ones({2});
  CHECK(error_of([&] {
          OperationTape([&] {
            x.zero_();
            if (x[0].item<float>() > 0) x.add_(1);
          });
        }) == "9: aten::_local_scalar_dense waits for the GPU, and that cannot be recorded");
  CHECK(error_of([&] { OperationTape([&] { x.nonzero(); }); }) ==
        "9: aten::nonzero waits for the GPU, and that cannot be recorded");
  CHECK(x.equal(at::ones({2})));
  CHECK(x[0].item<float>() == 1);
}
