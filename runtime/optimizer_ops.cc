// sgd, adam and adamw by LibTorch's fused operations.
#include "runtime/optimizer_ops.h"

#include <ATen/ATen.h>

namespace lanewise {
namespace {

// As the fused operations take it: nothing, or what stops them.
std::optional<at::Tensor> unless(const at::Tensor& held) { return held.defined() ? std::optional(held) : std::nullopt; }

// v <- momentum·v + (g + decay·w);  w <- w - lr·v, or with nesterov w - lr·(g + decay·w + momentum·v)
class Sgd final : public FlatOptimizer {
 public:
  Sgd(const OptimizerParams& params, const at::Tensor& weights) : params_(params) {
    if (params.momentum != 0) momentum_ = {at::zeros_like(weights)};
  }

  void step(at::Tensor& weights, const at::Tensor& gradient, double lr, const at::Tensor& held) override {
    at::_fused_sgd_({weights}, {gradient}, momentum_, params_.weight_decay.value_or(0), params_.momentum, lr,
                    /*dampening=*/0, params_.nesterov, /*maximize=*/false, /*is_first_step=*/false, {}, unless(held));
  }
  std::vector<NamedTensor> state() const override {
    if (momentum_.empty()) return {};
    return {{"momentum", momentum_[0]}};
  }

 private:
  const OptimizerParams params_;
  std::vector<at::Tensor> momentum_;  // none, or the flat v
};

// m <- β1·m + (1-β1)·g;  v <- β2·v + (1-β2)·g²;  w <- w - lr·m/(1-β1^t) / (sqrt(v/(1-β2^t)) + eps)
// Weight decay is added to the gradient by adam, and shrinks w by lr·decay before the step by adamw.
class Adam final : public FlatOptimizer {
 public:
  Adam(const OptimizerParams& params, const at::Tensor& weights)
      : params_(params),
        decoupled_(params.name == "adamw"),
        m_(at::zeros_like(weights)),
        v_(at::zeros_like(weights)),
        step_(at::zeros({}, weights.options().dtype(at::kFloat))) {}

  void step(at::Tensor& weights, const at::Tensor& gradient, double lr, const at::Tensor& held) override {
    step_.add_(1);  // before the operation, which divides by 1 - β^t
    if (held.defined()) step_.sub_(held);
    const auto fused = decoupled_ ? static_cast<Fused>(at::_fused_adamw_) : static_cast<Fused>(at::_fused_adam_);
    fused({weights}, {gradient}, {m_}, {v_}, {}, {step_}, lr, params_.betas[0], params_.betas[1],
          params_.weight_decay.value_or(decoupled_ ? 0.01 : 0), params_.eps, /*amsgrad=*/false, /*maximize=*/false, {},
          unless(held));
  }
  std::vector<NamedTensor> state() const override { return {{"exp_avg", m_}, {"exp_avg_sq", v_}, {"step", step_}}; }

 private:
  using Fused = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&);
  const OptimizerParams params_;
  const bool decoupled_;
  at::Tensor m_, v_, step_;
};

}  // namespace

void OptimizerParams::fields(Fields& f) {
  f.add("name", &name, "the rule of the step").one_of({"sgd", "adam", "adamw"});
  f.add("lr", &lr, "learning rate").above(0);
  f.add("momentum", &momentum, "share of the last step that sgd keeps").between(0, 1);
  f.add("nesterov", &nesterov, "sgd looks ahead along its momentum");
  f.add("betas", &betas, "decay of adam's and adamw's first and second moment").between(0, 1);
  f.add("eps", &eps, "keeps adam's and adamw's divisor from zero").above(0);
  f.add("weight_decay", &weight_decay, "pull towards zero; 0.01 for adamw and 0 for the others when absent")
      .at_least(0);
  schedule.fields(f);
  if (betas.size() != 2 || betas[0] == 1 || betas[1] == 1) f.problem("betas", "betas takes two numbers below 1");
  if (nesterov && momentum == 0) f.problem("nesterov", "nesterov needs a momentum above 0");
}

std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerParams& params, const at::Tensor& weights) {
  if (params.name == "sgd") return std::make_unique<Sgd>(params, weights);
  if (params.name == "adam" || params.name == "adamw") return std::make_unique<Adam>(params, weights);
  throw Error(Exit::kInternal, "no optimizer " + params.name);
}

Optimizers::Optimizers(const OptimizerParams& params, Replicas& replicas) : replicas_(replicas) {
  for (int d = 0; d < replicas.domain_count(); ++d)
    domains_.push_back(make_flat_optimizer(params, replicas.weights(d)));
}

void Optimizers::step(double lr) {
  for (int d = 0; d < replicas_.domain_count(); ++d) step(d, lr, {});
}

void Optimizers::step(int domain, double lr, const at::Tensor& held) {
  const at::Tensor gradient = replicas_.reduced(domain).narrow(0, 0, replicas_.layout().parameters);
  domains_[domain]->step(replicas_.weights(domain), gradient, lr, held);
  replicas_.mark_changed(domain);
}

void Optimizers::restore(const std::function<const at::Tensor*(const std::string& name)>& find) {
  for (const std::unique_ptr<FlatOptimizer>& domain : domains_) {
    for (NamedTensor& own : domain->state()) {
      const at::Tensor* const saved = find(own.name);
      if (saved == nullptr || saved->sizes() != own.tensor.sizes() ||
          saved->scalar_type() != own.tensor.scalar_type()) {
        throw Error(Exit::kCheckpoint,
                    fmt::format("the checkpoint has no optimizer state \"{}\" of this shape; the optimizer "
                                "that wrote it was another one",
                                own.name));
      }
      own.tensor.copy_(*saved);
    }
  }
}

}  // namespace lanewise
