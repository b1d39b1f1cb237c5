// The GPUs of this machine, as the CUDA runtime sees them.
#include "runtime/cuda/device_query.h"

#include <cuda_runtime_api.h>

#include <cstdio>

namespace {

int failed(cudaError_t code, char* error, int room) {
  std::snprintf(error, static_cast<std::size_t>(room), "%s", cudaGetErrorString(code));
  return -1;
}

}  // namespace

extern "C" int lanewise_cuda_devices(lanewise_gpu* gpus, int room, char* error, int error_room) {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count)) return failed(code, error, error_room);
  for (int i = 0; i < count && i < room; ++i) {
    cudaDeviceProp properties;
    if (const cudaError_t code = cudaGetDeviceProperties(&properties, i)) return failed(code, error, error_room);
    std::snprintf(gpus[i].name, sizeof gpus[i].name, "%s", properties.name);
    gpus[i].bytes = properties.totalGlobalMem;
  }
  return count;
}
