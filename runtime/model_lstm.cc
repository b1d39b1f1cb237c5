// lstm: long short-term memory layers over the time steps of a sample, and a linear head on the last step.
//
//   i, f, o = σ(W x + b + U h + u)     g = tanh(W x + b + U h + u)
//   c' = f·c + i·g     h' = o·tanh(c')     prediction = W h' + b
//
// The rows of the weights are in the order i, f, g, o. The state is h and then c of each layer.
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
struct LstmLayer : torch::autograd::Function<LstmLayer> {
  // x [time, n, features], h0 and c0 [n, hidden] -> h after each step [time, n, hidden], c after the last.
  static Tensors forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                         const at::Tensor& w_ih, const at::Tensor& w_hh, const at::Tensor& b_ih, const at::Tensor& b_hh,
                         bool native) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const std::int64_t times = x.size(0), n = x.size(1), hidden = h0.size(1);
    const at::Tensor gates = at::linear(x, w_ih, b_ih + b_hh), w_hh_t = w_hh.t();  // becomes i, f, (not g), o
    const at::Tensor g = at::empty({times, n, hidden}, x.options());
    const at::Tensor tanh_c = at::empty_like(g);
    const at::Tensor h = at::empty({times + 1, n, hidden}, x.options()), c = at::empty_like(h);
    h.select(0, 0).copy_(h0);
    c.select(0, 0).copy_(c0);
    if (native) with_type(x, [&]<class T>(T) { steps<T>(w_hh_t.contiguous(), gates, tanh_c, h, c); });
    context->save_for_backward({x, w_ih, w_hh, gates, g, c, tanh_c, h});
    context->saved_data["native"] = native;
    if (native) return {h.narrow(0, 1, times), c.select(0, times)};

    const Tensors h_at = h.unbind(0), c_at = c.unbind(0), g_at = g.unbind(0), tanh_c_at = tanh_c.unbind(0),
                  gates_at = gates.unbind(0), parts = gates.chunk(4, 2), i_at = parts[0].unbind(0),
                  f_at = parts[1].unbind(0), before_g_at = parts[2].unbind(0), o_at = parts[3].unbind(0);
    for (std::int64_t t = 0; t < times; ++t) {
      at::Tensor g_t = g_at[t], c_t = c_at[t + 1], tanh_c_t = tanh_c_at[t], h_t = h_at[t + 1];
      gates_at[t].addmm_(h_at[t], w_hh_t);
      at::tanh_out(g_t, before_g_at[t]);
      gates_at[t].sigmoid_();  // of the block of g, too: one call is quicker than two
      at::mul_out(c_t, f_at[t], c_at[t]).addcmul_(i_at[t], g_t);
      at::tanh_out(tanh_c_t, c_t);
      at::mul_out(h_t, o_at[t], tanh_c_t);
    }
    return {h.narrow(0, 1, times), c.select(0, times)};
  }

  // The steps of the forward: `gates` [time, n, 4, hidden] has what does not hang on the step before, and becomes the
  // gates; tanh_c, h and c [time + 1, …] are filled in.
  template <class T>
  static void steps(const at::Tensor& w_hh_t, const at::Tensor& gates, const at::Tensor& tanh_c, const at::Tensor& h,
                    const at::Tensor& c) {
    const std::int64_t times = tanh_c.size(0), n = tanh_c.size(1), hidden = tanh_c.size(2), all = n * hidden;
    const Loops<T>& in = loops<T>();
    T *gate = data_of<T>(gates), *tanh_now = data_of<T>(tanh_c), *h_before = data_of<T>(h), *c_before = data_of<T>(c);
    for (std::int64_t t = 0; t < times; ++t) {
      in.multiply(n, hidden, 4 * hidden, h_before, data_of<const T>(w_hh_t), gate);
      for (std::int64_t row = 0; row < n; ++row) {
        in.lstm_step(hidden, gate, c_before, c_before + all, tanh_now, h_before + all);
        gate += 4 * hidden, tanh_now += hidden, h_before += hidden, c_before += hidden;
      }
    }
  }

  // The steps of the backward: d_h [time + 1, n, hidden] and d_c [n, hidden] have the gradients from outside of h after
  // each step and of c after the last; d_h[0] and d_c become those of h0 and c0.
  template <class T>
  static void back_steps(const at::Tensor& w_hh, const at::Tensor& gates, const at::Tensor& c, const at::Tensor& tanh_c,
                         const at::Tensor& d_h, const at::Tensor& d_c, const at::Tensor& d_gates) {
    const std::int64_t times = tanh_c.size(0), n = tanh_c.size(1), hidden = tanh_c.size(2);
    const Loops<T>& in = loops<T>();
    for (std::int64_t t = times - 1; t >= 0; --t) {
      T* const d_before = data_of<T>(d_h) + t * n * hidden;
      T* const d_gates_t = data_of<T>(d_gates) + t * n * 4 * hidden;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = (t * n + i) * hidden;
        in.lstm_back(hidden, data_of<const T>(gates) + 4 * row, data_of<const T>(c) + row,
                     data_of<const T>(tanh_c) + row, d_before + (n + i) * hidden, data_of<T>(d_c) + i * hidden,
                     d_gates_t + 4 * i * hidden);
      }
      in.multiply(n, 4 * hidden, hidden, d_gates_t, data_of<const T>(w_hh), d_before);
    }
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w_hh = saved[2], &g = saved[4], &tanh_c = saved[6];
    const Tensors gates = saved[3].chunk(4, 2);
    const at::Tensor &i = gates[0], &f = gates[1], &o = gates[3];
    const std::int64_t times = x.size(0), n = x.size(1), hidden = g.size(2);
    const at::Tensor c = saved[5].narrow(0, 0, times);  // before each step
    const at::Tensor d_gates = at::empty({times, n, 4, hidden}, x.options());
    const at::Tensor d_h = at::cat({at::zeros({1, n, hidden}, x.options()), gradients[0]});  // [0] is that of h0
    const at::Tensor d_c = gradients[1].clone(at::MemoryFormat::Contiguous);                 // runs back to that of c0
    if (context->saved_data["native"].toBool()) {
      with_type(x, [&]<class T>(T) { back_steps<T>(w_hh, saved[3], saved[5], tanh_c, d_h, d_c, d_gates); });
      return all_gradients(*context, saved, d_gates, d_h, d_c);
    }
    // The derivatives of h' by c' and by the argument of o's σ, and of c' by the arguments of the other gates.
    const at::Tensor c_in_h = o * (1 - tanh_c * tanh_c), o_in_h = tanh_c * o * (1 - o);
    const at::Tensor ifg_in_c = at::stack({g * i * (1 - i), c * f * (1 - f), i * (1 - g * g)}, 2);

    const at::Tensor d_c_wide = d_c.unsqueeze(1);
    const Tensors d_h_at = d_h.unbind(0), d_ifg_at = d_gates.narrow(2, 0, 3).unbind(0),
                  d_o_at = d_gates.select(2, 3).unbind(0),
                  d_gates_flat_at = d_gates.view({times, n, 4 * hidden}).unbind(0), c_in_h_at = c_in_h.unbind(0),
                  o_in_h_at = o_in_h.unbind(0), ifg_in_c_at = ifg_in_c.unbind(0), f_at = f.unbind(0);
    for (std::int64_t t = times - 1; t >= 0; --t) {
      at::Tensor d_ifg_t = d_ifg_at[t], d_o_t = d_o_at[t];
      d_c.addcmul_(d_h_at[t + 1], c_in_h_at[t]);
      at::mul_out(d_ifg_t, ifg_in_c_at[t], d_c_wide);
      at::mul_out(d_o_t, o_in_h_at[t], d_h_at[t + 1]);
      d_h_at[t].addmm_(d_gates_flat_at[t], w_hh);
      d_c.mul_(f_at[t]);
    }
    return all_gradients(*context, saved, d_gates, d_h, d_c);
  }

  static Tensors all_gradients(AutogradContext& context, const Tensors& saved, const at::Tensor& d_gates,
                               const at::Tensor& d_h, const at::Tensor& d_c) {
    const at::Tensor d = d_gates.flatten(2), h = saved[7].narrow(0, 0, d.size(0));
    auto [d_w_ih, d_w_hh, d_b_ih, d_b_hh] = leaf_gradients(d, d, saved[0], h, context.saved_data["native"].toBool());
    return {context.needs_input_grad(0) ? at::matmul(d, saved[1]) : at::Tensor(),
            d_h.select(0, 0),
            d_c,
            d_w_ih,
            d_w_hh,
            d_b_ih,
            d_b_hh,
            at::Tensor()};
  }
};

class Lstm final : public Recurrent {
 public:
  Lstm(const Params& params, const Shape& input, const Shape& output)
      : Recurrent("lstm", /*gates=*/4, /*parts=*/2, params, input, output) {}

 private:
  at::Tensor layer(const at::Tensor& x, std::span<const at::Tensor, 4> leaves, at::Tensor& state,
                   bool native) const override {
    const Tensors before = state.chunk(2, 1);
    const Tensors after = LstmLayer::apply(x, before[0], before[1], leaves[0], leaves[1], leaves[2], leaves[3], native);
    state = at::cat({after[0].select(0, x.size(0) - 1), after[1]}, 1);
    return after[0];
  }
};

}  // namespace

ModelType lstm_model() {
  return make_model_type<Lstm>("lstm",
                               "long short-term memory layers over the time steps of a stream, and a linear head");
}

}  // namespace lanewise
