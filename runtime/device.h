// Devices of the machine beyond the virtual ones of the host.
//
// liblanewise_cuda.so is the only part of lanewise that knows CUDA. It is opened when a pipeline names a GPU and never
// else, so that a program on a machine without CUDA neither needs nor loads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace lanewise {

// GPUs that the NVIDIA kernel driver shows. Loads and starts nothing.
int visible_gpus();

// Why what was planned cannot run on the devices that it names, and what to do; "" where it can.
std::string device_refusal(const Plan& plan);

struct Gpu {
  std::string name;
  std::uint64_t bytes = 0;  // of its memory
};

// Asks the CUDA library. Throws Error(kDevice) when the library was not built, does not load, or finds no driver or
// GPU.
std::vector<Gpu> query_gpus();

}  // namespace lanewise
