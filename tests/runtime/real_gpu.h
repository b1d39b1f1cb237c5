// A GPU for a test: a real one with LANEWISE_TEST_GPU set (not verified on a GPU), else an emulated one.
#pragma once

#include <ATen/ATen.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "runtime/cuda_library.h"
#include "runtime/devices/emulated.h"
#include "runtime/devices/queue.h"

namespace lanewise {

inline bool gpu_is_real() { return std::getenv("LANEWISE_TEST_GPU") != nullptr; }

inline std::unique_ptr<Accelerator> one_gpu() {
  return gpu_is_real() ? open_cuda_accelerator() : make_emulated_accelerator();
}

// Gives the queue work for some seconds.
inline void keep_busy(DeviceQueue& queue, at::Device device) {
  if (!gpu_is_real()) return queue.run([] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  queue.run([device] {
    constexpr std::int64_t kSide = 8192;  // products of 10^12 operations in float64 each
    const at::Tensor a = at::full({kSide, kSide}, 1e-4, at::TensorOptions(at::kDouble).device(device));
    at::Tensor b = a;
    for (int i = 0; i < 150; ++i) b = at::mm(a, b);
  });
}

}  // namespace lanewise
