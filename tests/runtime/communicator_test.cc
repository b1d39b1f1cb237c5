#include "runtime/communicator.h"

#include <ATen/ATen.h>

#include "runtime/random.h"
#include "tests/check.h"

using namespace lanewise;

namespace {

constexpr int kSeed = 11;

// Lanes of two streams each, over a linear model of `width` inputs; buckets filled with wide-ranging random numbers and
// weights that are not all one.
Replicas filled(int lanes, at::ScalarType dtype, std::int64_t width, bool per_device = false) {
  Replicas r([&] { return model_type("linear").make(nlohmann::json::object(), {width}, {1}); }, "net",
             {.dtype = dtype, .per_device = per_device, .lanes = lanes, .streams = 2 * lanes});
  for (int lane = 0; lane < lanes; ++lane) {
    Random random(kSeed, "test", "lane" + std::to_string(lane));
    std::vector<double> values(r.layout().size);
    for (std::int64_t i = 0; i < r.layout().parameters; ++i) {
      values[i] = random.normal() * std::exp(8 * random.normal());
    }
    for (int stream = 2 * lane; stream < 2 * lane + 2; ++stream) {
      values[r.layout().loss_at(stream)] = random.uniform();
      values[r.layout().weight_at(stream)] = stream % 3 == 0 ? 0.5 : 1;
    }
    values[r.layout().flag_at(lane, Flag::kStop)] = lane % 2;
    r.bucket(lane).copy_(at::tensor(values, at::kDouble));
  }
  return r;
}

// What reduce() promises, element by element.
template <class T>
void check_reduction(Replicas& r) {
  const BucketLayout& layout = r.layout();
  const double n = make_local_communicator()->reduce(r);
  double right_n = 0;
  for (int s = 0; s < layout.streams; ++s) right_n += s % 3 == 0 ? 0.5 : 1;
  CHECK(n == right_n);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < layout.size; ++i) {
    double sum = 0;
    for (int lane = 0; lane < r.lane_count(); ++lane) sum += r.bucket(lane).const_data_ptr<T>()[i];
    const T right = static_cast<T>(i < layout.parameters ? sum * (1 / n) : sum);
    if (r.reduced(0).const_data_ptr<T>()[i] != right) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("communicator: the reduced gradient is the sum in lane order in double, times 1/N, rounded once") {
  CAPTURE(kSeed);
  for (const int lanes : {1, 2, 3, 7, 8}) {
    for (const std::int64_t width : {1, 255, 256, 1000}) {
      CAPTURE(lanes);
      CAPTURE(width);
      Replicas narrow = filled(lanes, at::kFloat, width), wide = filled(lanes, at::kDouble, width);
      check_reduction<float>(narrow);
      check_reduction<double>(wide);
    }
  }
}

TEST_CASE("communicator: every domain gets the same bits, whether the weights are shared or not") {
  Replicas shared = filled(8, at::kFloat, 300), own = filled(8, at::kFloat, 300, true);
  const auto communicator = make_local_communicator();
  communicator->reduce(shared);
  communicator->reduce(own);
  for (int domain = 0; domain < 8; ++domain) CHECK(at::equal(own.reduced(domain), shared.reduced(0)));
}

TEST_CASE("communicator: with N = 0 the gradient is zero and the tail is still gathered") {
  Replicas r = filled(2, at::kFloat, 10);
  for (int lane = 0; lane < 2; ++lane) {
    for (int stream = 0; stream < 4; ++stream) r.bucket(lane)[r.layout().weight_at(stream)] = 0;
  }
  CHECK(make_local_communicator()->reduce(r) == 0);
  CHECK(at::count_nonzero(r.reduced(0).narrow(0, 0, r.layout().parameters)).item<std::int64_t>() == 0);
  CHECK(r.reduced(0)[r.layout().flag_at(1, Flag::kStop)].item<float>() == 1);
  CHECK(r.reduced(0)[r.layout().loss_at(3)].item<float>() == r.bucket(1)[r.layout().loss_at(3)].item<float>());
}
