#include "runtime/tensor_ring.h"

#include <ATen/ATen.h>

#include <deque>
#include <set>

#include "tests/check.h"

using namespace lanewise;

TEST_CASE("tensor ring: what is let go is given again; what is held, or a view of it, is not") {
  TensorRing ring;
  at::Tensor first = ring.next({2, 3}, at::kFloat);
  CHECK(first.sizes() == at::IntArrayRef{2, 3});
  CHECK((first.scalar_type() == at::kFloat));
  const void* const place = first.data_ptr();
  at::Tensor view = first.select(0, 1);
  first.reset();
  at::Tensor second = ring.next({2, 3}, at::kFloat);
  CHECK(second.data_ptr() != place);
  view.reset();
  CHECK(ring.next({2, 3}, at::kFloat).data_ptr() == place);
  CHECK(ring.next({2, 3}, at::kFloat).data_ptr() != second.data_ptr());
}

TEST_CASE("tensor ring: a steady stream gets along with as many tensors as are held at once, and one more") {
  TensorRing ring;
  std::deque<at::Tensor> held;
  std::set<const void*> places;
  for (int i = 0; i < 200; ++i) {
    held.push_back(ring.next({4}, at::kDouble));
    places.insert(held.back().data_ptr());
    CHECK(held.back().fill_(i).sum().item<double>() == 4 * i);
    if (held.size() > 5) held.pop_front();
    for (std::size_t k = 0; k < held.size(); ++k)
      CHECK(held[k][0].item<double>() == i - static_cast<int>(held.size() - 1 - k));
  }
  CHECK(places.size() == 6);
}

TEST_CASE("tensor ring: shapes and types may change, and whoever keeps everything costs nobody else") {
  TensorRing ring;
  CHECK(ring.next({4}, at::kDouble).numel() == 4);
  CHECK(ring.next({2, 2}, at::kDouble).dim() == 2);
  CHECK((ring.next({2, 2}, at::kLong).scalar_type() == at::kLong));
  std::vector<at::Tensor> all;
  std::set<const void*> places;
  for (int i = 0; i < 500; ++i) {
    all.push_back(ring.next({8}, at::kFloat));
    places.insert(all.back().data_ptr());
  }
  CHECK(places.size() == 500);
}
