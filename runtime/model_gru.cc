// gru: gated recurrent layers over the time steps of a sample, and a linear head on the last step.
//
//   r = σ(Wir x + bir + Whr h + bhr)     z = σ(Wiz x + biz + Whz h + bhz)
//   n = tanh(Win x + bin + r·(Whn h + bhn))     h' = (1 - z)·n + z·h     prediction = W h' + b
//
// The rows of the weights are in the order r, z, n. The state is h of each layer.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/loops.h"
#include "runtime/recurrent.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

using torch::autograd::AutogradContext;
using Tensors = std::vector<at::Tensor>;

// A layer over all time steps as one node of the autograd graph. Only what hangs on the step before is computed step by
// step; the rest is done for all steps at once. Its gradients have no gradients of their own.
struct GruLayer : torch::autograd::Function<GruLayer> {
  // x [time, n, features], h0 [n, hidden] -> h after each step [time, n, hidden].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& h0, const at::Tensor& w_ih,
                            const at::Tensor& w_hh, const at::Tensor& b_ih, const at::Tensor& b_hh, bool native) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const std::int64_t times = x.size(0), n = x.size(1), hidden = h0.size(1);
    const at::Tensor from_x = at::linear(x, w_ih, b_ih), w_hh_t = w_hh.t();
    const at::Tensor gates = from_x + b_hh;  // becomes r, z, Whn h + bhn
    gates.narrow(2, 2 * hidden, hidden).copy_(b_hh.narrow(0, 2 * hidden, hidden));
    const at::Tensor fresh = at::empty({times, n, hidden}, x.options());  // n
    const at::Tensor h = at::empty({times + 1, n, hidden}, x.options());
    h.select(0, 0).copy_(h0);
    context->save_for_backward({x, w_ih, w_hh, gates, fresh, h});
    context->saved_data["native"] = native;
    if (native) {
      with_type(x, [&]<class T>(T) { steps<T>(w_hh_t.contiguous(), from_x, gates, fresh, h); });
      return h.narrow(0, 1, times);
    }

    const Tensors h_at = h.unbind(0), fresh_at = fresh.unbind(0), gates_at = gates.unbind(0),
                  rz_at = gates.narrow(2, 0, 2 * hidden).unbind(0), r_at = gates.narrow(2, 0, hidden).unbind(0),
                  z_at = gates.narrow(2, hidden, hidden).unbind(0),
                  hn_at = gates.narrow(2, 2 * hidden, hidden).unbind(0),
                  xn_at = from_x.narrow(2, 2 * hidden, hidden).unbind(0);
    for (std::int64_t t = 0; t < times; ++t) {
      gates_at[t].addmm_(h_at[t], w_hh_t);
      rz_at[t].sigmoid_();
      at::Tensor n_t = fresh_at[t], h_t = h_at[t + 1];
      at::addcmul_out(n_t, xn_at[t], r_at[t], hn_at[t]).tanh_();
      at::lerp_out(h_t, n_t, h_at[t], z_at[t]);
    }
    return h.narrow(0, 1, times);
  }

  // The steps of the forward: `gates` [time, n, 3, hidden], which has what does not hang on the step before, `fresh`
  // and h [time + 1, …] are filled in.
  template <class T>
  static void steps(const at::Tensor& w_hh_t, const at::Tensor& from_x, const at::Tensor& gates,
                    const at::Tensor& fresh, const at::Tensor& h) {
    const std::int64_t times = fresh.size(0), n = fresh.size(1), hidden = fresh.size(2);
    const Loops<T>& in = loops<T>();
    T *gate = data_of<T>(gates), *fresh_now = data_of<T>(fresh), *before = data_of<T>(h);
    const T* xn = data_of<const T>(from_x) + 2 * hidden;
    for (std::int64_t t = 0; t < times; ++t) {
      in.multiply(n, hidden, 3 * hidden, before, data_of<const T>(w_hh_t), gate);
      for (std::int64_t row = 0; row < n; ++row) {
        in.gru_step(hidden, gate, xn, before, fresh_now, before + n * hidden);
        gate += 3 * hidden, xn += 3 * hidden, fresh_now += hidden, before += hidden;
      }
    }
  }

  // The steps of the backward: d_h [time + 1, n, hidden] has the gradients from outside of h after each step, and [0]
  // becomes that of h0.
  template <class T>
  static void back_steps(const at::Tensor& w_hh, const at::Tensor& gates, const at::Tensor& fresh, const at::Tensor& h,
                         const at::Tensor& d_h, const at::Tensor& d_gates, const at::Tensor& d_n) {
    const std::int64_t times = fresh.size(0), n = fresh.size(1), hidden = fresh.size(2);
    const Loops<T>& in = loops<T>();
    for (std::int64_t t = times - 1; t >= 0; --t) {
      T* const d_before = data_of<T>(d_h) + t * n * hidden;
      T* const d_after = d_before + n * hidden;
      T* const d_gates_t = data_of<T>(d_gates) + t * n * 3 * hidden;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = (t * n + i) * hidden;
        in.gru_back(hidden, data_of<const T>(gates) + 3 * row, data_of<const T>(fresh) + row, data_of<const T>(h) + row,
                    d_after + i * hidden, d_gates_t + 3 * i * hidden, data_of<T>(d_n) + row);
      }
      for (std::int64_t i = 0; i < n * hidden; ++i) d_before[i] += d_after[i];
      in.multiply(n, 3 * hidden, hidden, d_gates_t, data_of<const T>(w_hh), d_before);
    }
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w_hh = saved[2], &fresh = saved[4];
    const Tensors gates = saved[3].chunk(3, 2);
    const at::Tensor &r = gates[0], &z = gates[1], &hn = gates[2];
    const std::int64_t times = x.size(0), n = x.size(1), hidden = z.size(2);
    const at::Tensor h = saved[5].narrow(0, 0, times);  // before each step
    const at::Tensor d_gates = at::empty({times, n, 3, hidden}, x.options());
    const at::Tensor d_h = at::cat({at::zeros({1, n, hidden}, x.options()), gradients[0]});  // [0] is that of h0
    at::Tensor d_n;
    if (context->saved_data["native"].toBool()) {
      d_n = at::empty_like(fresh);
      with_type(x, [&]<class T>(T) { back_steps<T>(w_hh, saved[3], fresh, h, d_h, d_gates, d_n); });
      return all_gradients(*context, saved, d_gates, d_n, d_h);
    }
    // The derivatives of h' by the arguments of tanh and of both σ, and by Whn h + bhn.
    const at::Tensor by_n = (1 - z) * (1 - fresh * fresh);
    const at::Tensor by_gates = at::stack({by_n * hn * r * (1 - r), (h - fresh) * z * (1 - z), by_n * r}, 2);

    const Tensors d_h_at = d_h.unbind(0), d_h_wide_at = d_h.unsqueeze(2).unbind(0), d_gates_at = d_gates.unbind(0),
                  d_gates_flat_at = d_gates.view({times, n, 3 * hidden}).unbind(0), by_gates_at = by_gates.unbind(0),
                  z_at = z.unbind(0);
    for (std::int64_t t = times - 1; t >= 0; --t) {
      at::Tensor d_gates_t = d_gates_at[t];
      at::mul_out(d_gates_t, by_gates_at[t], d_h_wide_at[t + 1]);
      d_h_at[t].addcmul_(d_h_at[t + 1], z_at[t]).addmm_(d_gates_flat_at[t], w_hh);
    }
    return all_gradients(*context, saved, d_gates, by_n * d_h.narrow(0, 1, times), d_h);
  }

  // `d_n`: of Win x + bin, which alone is not that of Whn h + bhn.
  static Tensors all_gradients(AutogradContext& context, const Tensors& saved, const at::Tensor& d_gates,
                               const at::Tensor& d_n, const at::Tensor& d_h) {
    const std::int64_t times = d_n.size(0), hidden = d_n.size(2);
    const at::Tensor d_hh = d_gates.flatten(2), d_ih = d_hh.clone();
    d_ih.narrow(2, 2 * hidden, hidden).copy_(d_n);
    auto [d_w_ih, d_w_hh, d_b_ih, d_b_hh] =
        leaf_gradients(d_ih, d_hh, saved[0], saved[5].narrow(0, 0, times), context.saved_data["native"].toBool());
    return {context.needs_input_grad(0) ? at::matmul(d_ih, saved[1]) : at::Tensor(),
            d_h.select(0, 0),
            d_w_ih,
            d_w_hh,
            d_b_ih,
            d_b_hh,
            at::Tensor()};
  }
};

class Gru final : public Recurrent {
 public:
  Gru(const Params& params, const Shape& input, const Shape& output)
      : Recurrent("gru", /*gates=*/3, /*parts=*/1, params, input, output) {}

 private:
  at::Tensor layer(const at::Tensor& x, std::span<const at::Tensor, 4> leaves, at::Tensor& state,
                   bool native) const override {
    const at::Tensor h = GruLayer::apply(x, state, leaves[0], leaves[1], leaves[2], leaves[3], native);
    state = h.select(0, h.size(0) - 1);
    return h;
  }
};

}  // namespace

ModelType gru_model() {
  return make_model_type<Gru>("gru", "recurrent layers over the time steps of a stream, and a linear head");
}

}  // namespace lanewise
