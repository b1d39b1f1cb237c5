// LaneBuffers are the module buffers of all lanes: each lane's own, or their mean after each step.
//
// A lane's forward changes its own views. What has changed since the last commit() is undone by roll_back(), so that a
// step that is not applied leaves no trace. Several lanes' threads may change their own views at once; everything else
// is for when no lane runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/model.h"

namespace lanewise {

class LaneBuffers {
 public:
  // `average`: commit() gives every lane the mean of all.
  LaneBuffers(std::vector<BufferSpec> specs, int lanes, at::ScalarType dtype, bool average);

  const std::vector<BufferSpec>& specs() const { return specs_; }
  // A lane's buffers, views in the order of specs().
  std::vector<at::Tensor> of(int lane) const;
  // The mean of buffer i over the lanes, added up in lane order in double.
  at::Tensor mean(std::size_t i) const;
  // Gives every lane these values of buffer i.
  void set(std::size_t i, const at::Tensor& values);

  void commit();
  void roll_back();

  // Everything, for a checkpoint: [lanes, values], as of the last commit.
  const at::Tensor& values() const { return kept_; }
  // Throws Error(kCheckpoint) when these are of other lanes or layers.
  void restore(const at::Tensor& values);

 private:
  at::Tensor part(const at::Tensor& flat, std::size_t i) const;

  const std::vector<BufferSpec> specs_;
  std::vector<std::int64_t> offsets_;  // of each buffer in a lane's row
  const bool average_;
  at::Tensor values_, kept_;  // [lanes, values]
};

}  // namespace lanewise
