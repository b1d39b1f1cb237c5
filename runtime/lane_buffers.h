// LaneBuffers are the module buffers of all lanes: each lane's own, or their mean after each step. Those of other
// processes' lanes are as share() has last seen them. Fixed ones are one tensor for all lanes, which nobody changes but
// set(), and no part of what is said below.
//
// A lane's forward changes its own views. What has changed since the last commit() is undone by roll_back(), so that a
// step that is not applied leaves no trace. Several lanes' threads may change their own views at once; everything else
// is for when no lane runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "graph/cut.h"
#include "runtime/model.h"

namespace lanewise {

class LaneBuffers {
 public:
  // Takes the rows of this process's lanes, gives those of all.
  using Gather = std::function<at::Tensor(const at::Tensor&)>;

  // `lanes`: of all processes. `average`: commit() gives every lane the mean of all.
  LaneBuffers(std::vector<BufferSpec> specs, int lanes, LaneRange own, at::ScalarType dtype, bool average);

  const std::vector<BufferSpec>& specs() const { return specs_; }
  bool any_changes() const { return kept_.size(1) > 0; }  // not all are fixed
  // A lane's buffers, views in the order of specs().
  std::vector<at::Tensor> of(int lane) const;
  // The mean of buffer i over the lanes, added up in lane order in double; in the dtype of the state dict.
  at::Tensor mean(std::size_t i) const;
  // Gives every lane these values of buffer i, fixed or not.
  void set(std::size_t i, const at::Tensor& values);

  void commit(const Gather& gather);
  void roll_back();
  // Brings the rows of other processes' lanes up to date, as of the last commit.
  void share(const Gather& gather);

  // Everything, for a checkpoint: [lanes, values], as of the last commit.
  const at::Tensor& values() const { return kept_; }
  // Throws Error(kCheckpoint) when these are of other lanes or layers.
  void restore(const at::Tensor& values);

 private:
  at::Tensor part(const at::Tensor& flat, std::size_t i) const;

  const std::vector<BufferSpec> specs_;
  std::vector<std::int64_t> offsets_;  // of each buffer in a lane's row
  std::vector<at::Tensor> fixed_;      // by buffer; undefined: it is not
  const LaneRange own_;
  const bool average_;
  at::Tensor values_, kept_;  // [lanes, values]
};

}  // namespace lanewise
