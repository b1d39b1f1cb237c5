// Recurrent is what gru and lstm share: layers one on top of the other over all time steps, dropout between them, the
// state they carry, and a linear head on the last time step of each sample.
//
// A sample is one time step [features] or several [time, features]. The samples of a stream follow each other, so the
// state runs on through all time steps of a call.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/dropout.h"
#include "runtime/model.h"

namespace lanewise {

struct RecurrentParams {
  std::int64_t hidden = 32, layers = 1;
  double dropout = 0;
  std::string kernel = "auto";
  ModelSize size;

  void fields(Fields& f);
};

class Recurrent : public Model {
 public:
  using Params = RecurrentParams;

  std::int64_t state_size() const override { return layers_ * layer_state_; }
  at::Tensor forward(const at::Tensor& x, at::Tensor& state, const Pass& pass) const override;
  std::string unrecordable() const override { return dropout_ > 0 ? kHostMasks : ""; }

 protected:
  // A layer's weights have `gates` blocks of `hidden` rows, its state has `parts` vectors of `hidden` values.
  Recurrent(const std::string& type, int gates, int parts, const Params& params, const Shape& input,
            const Shape& output);

 private:
  // One layer over all time steps, its steps by our own loops where `native`: x [time, n, features], leaves W_ih, W_hh,
  // b_ih, b_hh, state [n, parts * hidden] -> [time, n, hidden], h after each step; `state` becomes the one after the
  // last.
  virtual at::Tensor layer(const at::Tensor& x, std::span<const at::Tensor, 4> leaves, at::Tensor& state,
                           bool native) const = 0;

  const std::int64_t hidden_, layers_, layer_state_, gates_;
  const double dropout_;
  const std::string kernel_;
  const Shape output_;
};

// For the backward of a layer, by the gradients d_x and d_h [time, n, gates * hidden] of W_ih x + b_ih and W_hh h +
// b_hh over all time steps: the gradients of W_ih, W_hh, b_ih, b_hh. x [time, n, features], h [time, n, hidden] before
// each step. `native`: by our own loops.
std::array<at::Tensor, 4> leaf_gradients(const at::Tensor& d_x, const at::Tensor& d_h, const at::Tensor& x,
                                         const at::Tensor& h, bool native);

}  // namespace lanewise
