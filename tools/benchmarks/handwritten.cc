// A training of tools/bench as one would write it by hand in C++ with LibTorch: the lanes' batches in a loop on two
// threads, the gradients of each in one buffer, added up in the lanes' order, one step of SGD. All samples are in
// memory before it starts.
//
//   handwritten FOLDER mlp|gru LANES STEPS WARM
//
// Sixteen streams in LANES batches. Prints microseconds a step behind the first WARM, and the mean loss of the last 100
// steps, as JSON.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/safetensors.h"

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kStreams = 16, kThreads = 2, kWindow = 32;
constexpr double kRate = 0.01;

// [steps, 9] of a stream's file: eight inputs and the target.
at::Tensor read_stream(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<float> values;
  while (std::getline(file, line)) {
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) values.push_back(std::stof(cell));
  }
  return at::tensor(values).view({-1, 9});
}

// Two threads that wait for each other, and do not sleep meanwhile.
class Barrier {
 public:
  void wait() {
    const int turn = turn_.load();
    if (arrived_.fetch_add(1) + 1 == kThreads) {
      arrived_ = 0;
      ++turn_;
      return;
    }
    while (turn_.load() == turn) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_ = 0, turn_ = 0;
};

struct Model {
  bool gru = false;
  Tensors initial;  // weights, in the order that forward() takes the leaves in

  Model(const std::string& folder, const std::string& kind) : gru(kind == "gru") {
    const lanewise::SafeTensors file = lanewise::read_safetensors(folder + "/" + kind + ".safetensors");
    const std::vector<const char*> names =
        gru ? std::vector<const char*>{"rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0",
                                       "rnn.bias_hh_l0",   "head.weight",      "head.bias"}
            : std::vector<const char*>{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"};
    for (const char* const name : names) initial.push_back(*file.find(name));
  }

  at::Tensor forward(const at::Tensor& x, const Tensors& w) const {
    if (!gru) return at::linear(at::relu(at::linear(at::relu(at::linear(x, w[0], w[1])), w[2], w[3])), w[4], w[5]);
    const at::Tensor h0 = at::zeros({1, x.size(0), 64});
    const auto [all, last] = at::gru(x, h0, {w[0], w[1], w[2], w[3]}, true, 1, 0, true, false, /*batch_first=*/true);
    return at::linear(last.squeeze(0), w[4], w[5]);
  }
};

// A buffer's pieces in the shapes of these tensors.
Tensors pieces(const at::Tensor& flat, const Tensors& shapes) {
  Tensors all;
  std::int64_t at = 0;
  for (const at::Tensor& shape : shapes) {
    all.push_back(flat.narrow(0, at, shape.numel()).view(shape.sizes()));
    at += shape.numel();
  }
  return all;
}

struct Lane {
  at::Tensor data;  // [streams, steps, 9]
  at::Tensor gradient;
  Tensors leaves;
  double loss = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string folder = argv[1];
  const Model model(folder, argv[2]);
  const int lane_count = std::atoi(argv[3]), steps = std::atoi(argv[4]), warm = std::atoi(argv[5]);
  at::set_num_threads(1);

  std::int64_t size = 0;
  for (const at::Tensor& p : model.initial) size += p.numel();
  const at::Tensor weights = at::empty({size}), sum = at::empty({size});
  const Tensors own = pieces(weights, model.initial);
  for (std::size_t i = 0; i < own.size(); ++i) at::Tensor(own[i]).copy_(model.initial[i]);

  std::vector<Lane> lanes(static_cast<std::size_t>(lane_count));
  const int rows = kStreams / lane_count;
  for (int i = 0; i < lane_count; ++i) {
    Lane& lane = lanes[i];
    Tensors streams;
    for (int s = i * rows; s < (i + 1) * rows; ++s) streams.push_back(read_stream(fmt::format("{}/{}.csv", folder, s)));
    lane.data = at::stack(streams);
    lane.gradient = at::zeros({size});
    lane.leaves = pieces(weights, model.initial);
    const Tensors gradients = pieces(lane.gradient, model.initial);
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      lane.leaves[p] = lane.leaves[p].detach().requires_grad_();
      lane.leaves[p].mutable_grad() = gradients[p];
    }
  }

  const auto work = [&](Lane& lane, int step) {
    const at::Tensor now = model.gru ? lane.data.narrow(1, step, kWindow) : lane.data.select(1, step);
    const at::Tensor x = now.narrow(-1, 0, 8), y = (model.gru ? now.select(1, kWindow - 1) : now).narrow(-1, 8, 1);
    lane.gradient.zero_();
    const at::Tensor loss = (model.forward(x, lane.leaves) - y).square().sum();
    loss.backward();
    lane.loss = loss.item<double>();
  };

  Barrier barrier;
  double us = 0, last = 0;
  const auto train = [&](int thread) {
    at::set_num_threads(1);
    auto begun = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
      if (step == warm) begun = std::chrono::steady_clock::now();
      for (int i = thread; i < lane_count; i += kThreads) work(lanes[i], step);
      barrier.wait();
      if (thread == 0) {
        const c10::NoGradGuard no_gradient;
        sum.copy_(lanes[0].gradient);
        for (int i = 1; i < lane_count; ++i) sum.add_(lanes[i].gradient);
        weights.sub_(sum, kRate / kStreams);
        for (const Lane& lane : lanes) last += step >= steps - 100 ? lane.loss / kStreams / 100 : 0;
      }
      barrier.wait();
    }
    if (thread == 0) us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  fmt::print("{{\"us\": {}, \"loss\": {}}}\n", us / (steps - warm), last);
  return 0;
}
