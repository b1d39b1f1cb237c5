// Tensors as safetensors files, which Python's safetensors and others read and write.
//
//   8 bytes   length of the header, little-endian
//   header    JSON {name: {"dtype", "shape", "data_offsets"}}, padded with spaces to a multiple of 8 bytes
//   data      the tensors' bytes, row-major, one after the other, the wider dtypes first
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lanewise {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // on the host; float32, float64, int64 or uint8 where it is to be written
};

// Hands the file's bytes to `sink`, in order; the same tensors and metadata give the same bytes.
void encode_safetensors(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata,
                        const std::function<void(std::string_view)>& sink);

// The file is there whole or not at all; throws Error(kCheckpoint) naming the path and the system's reason.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct SafeTensors {
  std::vector<NamedTensor> tensors;  // in the order of their bytes; memory of their own
  std::map<std::string, std::string> metadata;

  const at::Tensor* find(std::string_view name) const;  // null: there is none
};

// Reads a file, also one that others wrote (F16, BF16, I8, I16, I32 too), after checking all of it: sizes, shapes and
// offsets agree, every byte belongs to one tensor. Throws Error(kCheckpoint) naming the path, the tensor and the rule.
SafeTensors read_safetensors(const std::string& path);

}  // namespace lanewise
