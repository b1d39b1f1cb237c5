// A GradientWatch tells, while a backward goes on, of which parts of a lane's bucket all gradients are complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "runtime/devices/bucket_parts.h"

namespace lanewise {

// By one thread at a time: a backward is one that stays on the thread that calls it.
class GradientWatch {
 public:
  // `complete(part)`: the gradients of parts[part] are those of this round; called in the order of the parts, within
  // the backward or end(), for all but the last part. The leaves get a hook each.
  GradientWatch(std::span<const at::Tensor> leaves, std::vector<BucketPart> parts,
                std::function<void(int part)> complete);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // Around a round. Not `early`: all is told at the end.
  void begin(bool early);
  // Gradients that the backward has not come by are complete, too: they are zero.
  void end();

  // Parts that were told of within a backward.
  std::uint64_t early() const { return early_count_; }

 private:
  class Hook;
  void accumulated(int part);

  const std::vector<at::Tensor> leaves_;
  const std::vector<BucketPart> parts_;
  const std::function<void(int part)> complete_;
  std::vector<int> left_;  // parameters of each part whose gradients are not complete
  int next_ = 0;           // part to tell of
  bool early_ = false;
  std::uint64_t early_count_ = 0;
};

}  // namespace lanewise
