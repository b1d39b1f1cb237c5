// A ScriptModule is a TorchScript module of the user's: its tensors by their state-dict names, and its forward.
//
// TorchScript is code. Upstream calls it deprecated and says of loading an archive what one says of running a program:
// only `run`, `resume`, `eval` and `predict` come here. A module is loaded once a lane, never copied: deepcopy() and
// clone() silently give tensors that no gradient reaches.
//
// The graph executor's optimisations are off: they change a forward from its third call on, and with it the bits of a
// run that was resumed. By one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/signature.h"

namespace lanewise {

class ScriptModule {
 public:
  // `bytes` are those of the archive `path`. Floating-point tensors become `dtype`. Throws Error(kData) where the bytes
  // are no TorchScript archive or a damaged one, and Error(kPipeline) for what cannot be trained here, such as two
  // names of one tensor.
  ScriptModule(const std::string& bytes, std::string path, at::ScalarType dtype);
  ~ScriptModule();

  const std::string& path() const { return path_; }

  // A parameter or buffer as it was loaded, on the host, contiguous. `trained`: a parameter that requires a gradient.
  struct Named {
    std::string name;
    at::Tensor value;
    bool parameter = false, trained = false;
  };
  // In the order of a state dict. To be called once: the values are handed over.
  std::vector<Named> take_tensors();

  // Tensor i from now on, also where the module keeps it in a list (as nn.LSTM does).
  void put(std::size_t i, const at::Tensor& value);
  // Tensor i now: forward may have put another in its place.
  at::Tensor at(std::size_t i) const;

  // Whether forward takes so many tensors (what else it takes has defaults) and gives so many, and its signature as
  // text.
  bool maps(std::size_t inputs, std::size_t outputs) const;
  std::string signature() const;

  // An attribute that is an integer.
  std::optional<std::int64_t> integer(const std::string& name) const;

  // Runs forward, in training mode or in evaluation mode. Requires maps(inputs.size(), outputs) for some outputs.
  // Throws Error(kPipeline) with what the module's code says.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, bool training);

  // Everything that the module keeps beside parameters, buffers and `training`, as lines "name: value": what a forward
  // changes of it, no checkpoint holds.
  std::vector<std::string> other_attributes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  const std::string path_;
};

// What a module is tried out with before step 0: values from 0 to 1, which embeddings and logarithms take, too, the
// same for one `purpose`.
at::Tensor trial_values(const Shape& shape, at::ScalarType dtype, const std::string& purpose);
// Whether a row's result by itself and beside another row are the same, but for rounding.
bool alike(const at::Tensor& a, const at::Tensor& b);

// The state of LibTorch's own generator of random numbers on the host, which a forward that draws any changes.
at::Tensor library_random_state();

}  // namespace lanewise
