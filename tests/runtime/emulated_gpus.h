// Emulated GPUs for a test (runtime/devices/emulated.h), with the fake NCCL between them.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/check.h"

namespace lanewise {

// So many, whose work comes up to so much later, as long as this lives.
class EmulatedGpus {
 public:
  explicit EmulatedGpus(int count = 0, int delay_us = 0) {
    const char* const nccl = std::getenv("FAKE_NCCL");
    REQUIRE_MESSAGE(nccl != nullptr, "FAKE_NCCL must name the fake library; ctest sets it");
    ::setenv("LANEWISE_EMULATED_GPUS", std::to_string(count).c_str(), 1);
    ::setenv("LANEWISE_EMULATED_DELAY_US", std::to_string(delay_us).c_str(), 1);
    ::setenv("LANEWISE_EMULATED_NCCL", nccl, 1);
  }
  ~EmulatedGpus() {
    for (const char* const name : {"LANEWISE_EMULATED_GPUS", "LANEWISE_EMULATED_DELAY_US", "LANEWISE_EMULATED_NCCL",
                                   "LANEWISE_EMULATED_PART_BYTES", "LANEWISE_EMULATED_HANG"})
      ::unsetenv(name);
  }
  // Gradients are reduced in parts of at least so many bytes.
  void set_part_bytes(int bytes) { ::setenv("LANEWISE_EMULATED_PART_BYTES", std::to_string(bytes).c_str(), 1); }
  // A lane's rounds end before its so-manyth: a round is four pieces of work, what comes before it aside.
  void hang(int lane, int work) {
    ::setenv("LANEWISE_EMULATED_HANG", (std::to_string(2 * lane + 2) + ":" + std::to_string(work)).c_str(), 1);
  }
  EmulatedGpus(const EmulatedGpus&) = delete;
  EmulatedGpus& operator=(const EmulatedGpus&) = delete;
};

}  // namespace lanewise
