// Writes tensors as a safetensors file, which Python's safetensors and others read.
//
//   8 bytes   length of the header, little-endian
//   header    JSON {name: {"dtype", "shape", "data_offsets"}}, padded with spaces to a multiple of 8 bytes
//   data      the tensors' bytes, row-major, one after the other, the wider dtypes first
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>

namespace lanewise {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // float32, float64 or int64, on the host
};

// The same tensors and metadata give the same bytes. The file is there whole or not at all; throws Error(kCheckpoint)
// naming the path and the system's reason.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lanewise
