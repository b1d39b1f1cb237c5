// What NCCL has to know of this process's devices, without its headers.
#pragma once

#include <cstdint>

namespace lanewise {

// The queues of work of this process's devices, in the order of its ranks.
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;
  // Makes a device the calling thread's.
  virtual void use(int device) = 0;
  // Its cudaStream_t.
  virtual void* stream(int device) = 0;
  // Called by the thread that has just launched a round everywhere.
  virtual void launched() = 0;
  // Whether the oldest round that is not finished is done there; never waits.
  virtual bool done(int device) = 0;
  // That round is of no more interest.
  virtual void finished() = 0;
};

}  // namespace lanewise
