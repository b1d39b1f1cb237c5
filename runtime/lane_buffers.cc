#include "runtime/lane_buffers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/values.h"

namespace lanewise {
namespace {

// [lanes, …] -> […], in the dtype of the values.
at::Tensor mean_of_lanes(const at::Tensor& values) {
  at::Tensor sum = at::zeros(values.sizes().slice(1), at::kDouble);
  for (std::int64_t lane = 0; lane < values.size(0); ++lane) sum += values[lane].to(at::kDouble);
  return (sum / static_cast<double>(values.size(0))).to(values.scalar_type());
}

}  // namespace

LaneBuffers::LaneBuffers(std::vector<BufferSpec> specs, int lanes, LaneRange own, at::ScalarType dtype, bool average)
    : specs_(std::move(specs)), own_(own), average_(average) {
  std::int64_t size = 0;
  for (const BufferSpec& spec : specs_) {
    offsets_.push_back(size);
    fixed_.push_back(spec.fixed ? spec.given.clone() : at::Tensor());
    if (!spec.fixed) size += element_count(spec.shape);
  }
  values_ = at::zeros({lanes, size}, dtype);
  kept_ = at::zeros_like(values_);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].fixed) set(i, specs_[i].given.defined() ? specs_[i].given : at::full({}, specs_[i].initial, dtype));
  }
}

at::Tensor LaneBuffers::part(const at::Tensor& flat, std::size_t i) const {
  return flat.narrow(0, offsets_[i], element_count(specs_[i].shape)).view(specs_[i].shape);
}

std::vector<at::Tensor> LaneBuffers::of(int lane) const {
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    views.push_back(specs_[i].fixed ? fixed_[i] : part(values_[lane], i));
  }
  return views;
}

at::Tensor LaneBuffers::mean(std::size_t i) const {
  const BufferSpec& spec = specs_[i];
  if (spec.fixed) return fixed_[i];
  const at::Tensor mean = mean_of_lanes(kept_.narrow(1, offsets_[i], element_count(spec.shape))).view(spec.shape);
  return spec.given.defined() ? mean.to(spec.given.scalar_type()) : mean;
}

void LaneBuffers::set(std::size_t i, const at::Tensor& values) {
  if (specs_[i].fixed) {
    fixed_[i].copy_(values);
    return;
  }
  for (std::int64_t lane = 0; lane < values_.size(0); ++lane) part(values_[lane], i).copy_(values);
  kept_.copy_(values_);
}

void LaneBuffers::commit(const Gather& gather) {
  if (!any_changes()) return;
  if (average_) values_.copy_(mean_of_lanes(gather(values_.narrow(0, own_.begin, own_.count()))));
  kept_.copy_(values_);
}

void LaneBuffers::share(const Gather& gather) {
  if (any_changes()) kept_.copy_(gather(kept_.narrow(0, own_.begin, own_.count())));
}

void LaneBuffers::roll_back() {
  if (any_changes()) values_.copy_(kept_);
}

void LaneBuffers::restore(const at::Tensor& values) {
  if (values.sizes() != kept_.sizes()) {
    throw Error(Exit::kCheckpoint,
                fmt::format("the checkpoint's buffers are {} (lanes, values), and here {}",
                            to_string(Shape(values.sizes().vec())), to_string(Shape(kept_.sizes().vec()))));
  }
  values_.copy_(values);
  kept_.copy_(values);
}

}  // namespace lanewise
