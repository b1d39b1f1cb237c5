// liblanewise_cuda.so, the only part of lanewise that knows CUDA. It is opened when a pipeline names a GPU and never
// else, so that a program on a machine without CUDA neither needs nor loads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lanewise {

class Accelerator;

// The library lies beside the executable. Whether it was built; loads nothing.
bool cuda_was_built();

// Opens it, once for the rest of the process. Throws Error(kDevice).
void load_cuda_library();

// Opens one, which has to be of this program's build. Throws Error(kDevice).
void* open_cuda_library(const std::string& path);

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
