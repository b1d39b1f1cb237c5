#include "runtime/tensor_ring.h"

#include <ATen/ATen.h>

namespace lanewise {
namespace {

// More are in flight only where somebody keeps them; those are not worth holding on to.
constexpr std::size_t kMost = 64;

bool nobody_else_holds(const at::Tensor& tensor) {
  if (!tensor.getIntrusivePtr().is_uniquely_owned()) return false;
  // Views share the storage. Storage itself tells its owners without an acquire, which writing to it needs.
  auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  const bool owned = storage.is_uniquely_owned();
  storage.release();
  return owned;
}

}  // namespace

at::Tensor TensorRing::next(at::IntArrayRef shape, at::ScalarType dtype) {
  const bool any = !tensors_.empty();
  if (any && nobody_else_holds(tensors_[oldest_])) {
    at::Tensor& oldest = tensors_[oldest_];
    if (oldest.sizes() != shape || oldest.scalar_type() != dtype) oldest = at::empty(shape, dtype);
  } else if (tensors_.size() < kMost) {
    tensors_.insert(tensors_.begin() + static_cast<std::ptrdiff_t>(oldest_), at::empty(shape, dtype));
  } else {
    tensors_[oldest_] = at::empty(shape, dtype);
  }
  const at::Tensor& given = tensors_[oldest_];
  oldest_ = (oldest_ + 1) % tensors_.size();
  return given;
}

}  // namespace lanewise
