// The independent training that lanewise is compared with: one model, one batch of all streams, no lanes, no flat
// buffers, no fused operations. Nothing of the product's models, losses, replicas or optimizers is used.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/runtime/compare_runs.h"

namespace lanewise {

struct PlainLoop {
  struct Row {
    at::Tensor x, y;  // without a batch axis
    double weight = 1;
  };

  std::string model = "mlp";                  // linear, mlp, gru
  nlohmann::json params;                      // of the model, with its defaults written out: hidden, activation, layers
  std::map<std::string, at::Tensor> weights;  // the initial ones, by state-dict name; copied by run()
  std::string optimizer = "sgd";              // sgd, adam, adamw
  double lr = 1e-2, momentum = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;

  // samples[step][stream]; the loss is mse.
  TrainedRun run(const std::vector<std::vector<Row>>& samples) const {
    TrainedRun result;
    std::map<std::string, at::Tensor> m, v;
    for (const auto& [name, weight] : weights) {
      result.weights[name] = weight.detach().clone().requires_grad_();
      m[name] = at::zeros_like(weight);
      v[name] = at::zeros_like(weight);
    }
    for (std::size_t step = 0; step < samples.size(); ++step) {
      const at::Tensor loss = batch_loss(result.weights, samples[step]);
      loss.backward();
      result.losses.push_back(loss.item<double>());
      for (auto& [name, weight] : result.weights) {
        update(weight, m[name], v[name], static_cast<double>(step + 1));
        weight.mutable_grad() = at::Tensor();
      }
    }
    return result;
  }

 private:
  using Weights = std::map<std::string, at::Tensor>;

  at::Tensor predict(const Weights& w, const at::Tensor& x) const {
    if (model == "gru") {
      const auto layers = params.at("layers").get<std::int64_t>();
      std::vector<at::Tensor> rnn;
      for (std::int64_t l = 0; l < layers; ++l) {
        for (const char* part : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
          rnn.push_back(w.at(fmt::format("rnn.{}_l{}", part, l)));
        }
      }
      const at::Tensor sequence = x.dim() == 2 ? x.unsqueeze(1) : x;
      const at::Tensor zero = at::zeros({layers, x.size(0), rnn[1].size(1)}, x.options());
      const at::Tensor states = std::get<0>(at::gru(sequence, zero, rnn, /*has_biases=*/true, layers, /*dropout=*/0,
                                                    /*train=*/true, /*bidirectional=*/false, /*batch_first=*/true));
      return at::matmul(states.select(1, states.size(1) - 1), w.at("head.weight").t()) + w.at("head.bias");
    }
    at::Tensor h = x.flatten(1);
    if (model == "linear") return at::matmul(h, w.at("weight").t()) + w.at("bias");
    const std::string activation = params.at("activation");
    for (int layer = 0; w.contains(fmt::format("{}.weight", layer)); layer += 2) {
      if (layer > 0) h = activation == "tanh" ? at::tanh(h) : h * (h > 0);
      h = at::matmul(h, w.at(fmt::format("{}.weight", layer)).t()) + w.at(fmt::format("{}.bias", layer));
    }
    return h;
  }

  at::Tensor batch_loss(const Weights& w, const std::vector<Row>& rows) const {
    std::vector<at::Tensor> x, y;
    std::vector<double> row_weights;
    bool alike = true;
    for (const Row& row : rows) {
      x.push_back(row.x);
      y.push_back(row.y);
      row_weights.push_back(row.weight);
      alike = alike && row.weight == 1;
    }
    const at::Tensor target = at::stack(y), prediction = predict(w, at::stack(x)).view(target.sizes());
    if (alike) return at::mse_loss(prediction, target);
    const at::Tensor row_losses = (prediction - target).square().flatten(1).mean(1);
    const at::Tensor counts = at::tensor(row_weights, target.options());
    return (row_losses * counts).sum() / counts.sum();
  }

  void update(at::Tensor& weight, at::Tensor& m, at::Tensor& v, double t) const {
    const at::Tensor w = weight.detach();  // shares the values, without a graph
    at::Tensor g = weight.grad();
    if (optimizer != "adamw") g = g + weight_decay * w;
    if (optimizer == "sgd") {
      m = momentum * m + g;
      w.sub_(lr * m);
      return;
    }
    if (optimizer == "adamw") w.mul_(1 - lr * weight_decay);
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const at::Tensor unbiased_m = m / (1 - std::pow(beta1, t)), unbiased_v = v / (1 - std::pow(beta2, t));
    w.sub_(lr * unbiased_m / (unbiased_v.sqrt() + eps));
  }
};

}  // namespace lanewise
