// Devices of the machine beyond the virtual ones of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/cut.h"
#include "graph/plan.h"

namespace lanewise {

class Accelerator;
class World;

// The GPUs of these lanes of a plan, by number; empty: they are on the host.
std::vector<int> gpus_of_lanes(const Plan& plan, LaneRange lanes);

// GPUs whose device files are here and that CUDA_VISIBLE_DEVICES leaves, or that are emulated. Loads and starts
// nothing.
int visible_gpus();
// Of `count` GPUs, those that CUDA_VISIBLE_DEVICES leaves, as CUDA reads it: a list of numbers and of names that begin
// with GPU- or MIG-, up to the first entry that is none; none is left where one stands twice.
int gpus_left(int count, const std::string& chosen);

// The same, where lanewise was built for them: those that "auto:*" takes.
int usable_gpus();

// Why what was planned cannot run on the devices that it names, and what to do; "" where it can. Loads and starts
// nothing.
std::string device_refusal(const Plan& plan);

// Opens what lanes on GPUs need. To be called before LibTorch is asked anything about devices, since it remembers its
// first answer. Throws Error(kDevice).
void load_device_library(const Plan& plan);

// The GPUs that the plan's lanes are on; null: they are on the host. Requires: no device_refusal(). Throws
// Error(kDevice) when they cannot be used, and Error(kCommandLine) where a variable of the environment is malformed.
std::unique_ptr<Accelerator> open_accelerator(const Plan& plan);

// Throws Error(kDevice), in all processes, where lanes of two of them are on one GPU, which NCCL does not take. `plan`:
// of all processes; all of its lanes are on GPUs. `own`: lanes of this process.
void check_gpus_apart(World& world, const Plan& plan, LaneRange own, const Accelerator& accelerator);

}  // namespace lanewise
