#include "runtime/devices/gradient_watch.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace lanewise {

// Called by autograd when it has added a leaf's gradient, which it does once in a backward.
class GradientWatch::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientWatch& watch, int part) : watch_(watch), part_(part) {}
  void operator()(const at::Tensor&) override { watch_.accumulated(part_); }

 private:
  GradientWatch& watch_;
  const int part_;
};

GradientWatch::GradientWatch(std::span<const at::Tensor> leaves, std::vector<BucketPart> parts,
                             std::function<void(int part)> complete)
    : leaves_(leaves.begin(), leaves.end()), parts_(std::move(parts)), complete_(std::move(complete)) {
  for (int part = 0; part < static_cast<int>(parts_.size()); ++part) {
    for (int i = parts_[part].first; i < parts_[part].last; ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(leaves_[i], std::make_unique<Hook>(*this, part));
  }
}

GradientWatch::~GradientWatch() {
  for (const at::Tensor& leaf : leaves_) torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
}

void GradientWatch::begin(bool early) {
  early_ = early;
  next_ = 0;
  left_.clear();
  for (const BucketPart& part : parts_) left_.push_back(part.last - part.first);
}

void GradientWatch::accumulated(int part) {
  --left_[part];
  while (early_ && next_ + 1 < static_cast<int>(parts_.size()) && left_[next_] == 0) {
    complete_(next_++);
    ++early_count_;
  }
}

void GradientWatch::end() {
  while (next_ + 1 < static_cast<int>(parts_.size())) complete_(next_++);
}

}  // namespace lanewise
