#include "runtime/devices/emulated.h"

#include <ATen/ATen.h>

#include <future>

#include "tests/check.h"
#include "tests/runtime/emulated_gpus.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

TEST_CASE("emulated: what is ready at a point is there for who waits for it, and for nobody else") {
  const EmulatedGpus emulated;
  const auto gpu = make_emulated_accelerator();
  const auto ahead = gpu->make_queue(0), behind = gpu->make_queue(0), careless = gpu->make_queue(0);
  const auto point = ahead->make_point();
  CHECK(error_of([&] { behind->wait_for(*point); }) == "70: a point is waited for before any work has reached it");
  at::Tensor ready = at::zeros({3}), seen = at::zeros({3}), missed = at::zeros({3});
  std::promise<void> issued, read;
  ahead->run([&] {
    ready.fill_(7);
    ahead->reach(*point, ready);
    issued.set_value();
    read.get_future().wait();
  });
  issued.get_future().wait();
  behind->wait_for(*point);
  behind->run([&] { seen.copy_(ready); });
  careless->run([&] { missed.copy_(ready); });
  wait_for_all(*careless, {"who does not wait"});
  read.set_value();
  wait_for_all(*behind, {"who waits"});
  CHECK(missed.isnan().all().item<bool>());
  CHECK(seen.equal(at::full({3}, 7.0F)));
}
