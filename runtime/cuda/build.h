// Which build of lanewise the command and liblanewise_cuda.so are of: they share classes, so that both have to be of
// one. LANEWISE_CUDA_INTERFACE is a digest of the headers that both are made of (CMakeLists.txt).
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#define LANEWISE_CUDA_BUILD \
  "lanewise " LANEWISE_VERSION ", LibTorch " TORCH_VERSION ", interface " LANEWISE_CUDA_INTERFACE

// The library's own, which the command compares before it calls anything.
extern "C" const char lanewise_cuda_build[];
