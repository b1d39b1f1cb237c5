// Devices of the machine beyond the virtual ones of the host.
//
// liblanewise_cuda.so is the only part of lanewise that knows CUDA. It is opened when a pipeline names a GPU and never
// else, so that a program on a machine without CUDA neither needs nor loads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/cut.h"
#include "graph/plan.h"

namespace lanewise {

class Accelerator;

// The GPUs of these lanes of a plan, by number; empty: they are on the host.
std::vector<int> gpus_of_lanes(const Plan& plan, LaneRange lanes);

// GPUs whose device files are here and that CUDA_VISIBLE_DEVICES leaves, or that are emulated. Loads and starts
// nothing.
int visible_gpus();

// The same, where lanewise was built for them: those that "auto:*" takes.
int usable_gpus();

// Why what was planned cannot run on the devices that it names, and what to do; "" where it can. Loads and starts
// nothing.
std::string device_refusal(const Plan& plan);

// Opens what lanes on GPUs need. To be called before LibTorch is asked anything about devices, since it remembers its
// first answer. Throws Error(kDevice).
void load_device_library(const Plan& plan);

// The GPUs that the plan's lanes are on; null: they are on the host. Requires: no device_refusal(). Throws
// Error(kDevice) when they cannot be used.
std::unique_ptr<Accelerator> open_accelerator(const Plan& plan);
// The GPUs of this machine. Throws Error(kDevice).
std::unique_ptr<Accelerator> open_cuda_accelerator();

struct Gpu {
  std::string name;
  std::uint64_t bytes = 0;  // of its memory
};

// Asks the CUDA library. Throws Error(kDevice) when the library was not built, does not load, or finds no driver or
// GPU.
std::vector<Gpu> query_gpus();

}  // namespace lanewise
