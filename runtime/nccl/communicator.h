// The communicator between GPUs: NCCL adds up, one rank a device. Not verified on a GPU.
#pragma once

#include <memory>

#include "runtime/communicator.h"
#include "runtime/nccl/clique.h"
#include "runtime/world.h"

namespace lanewise {

struct NcclOptions {
  std::string library;                       // path of libnccl.so.2
  std::string reduction = "deterministic";   // reference, deterministic, fast
  std::chrono::milliseconds timeout{60000};  // that ranks may be late
};

// One rank a memory domain of `replicas`, in all processes together; returns when all have come. `streams`: of these
// domains' devices; it outlives the communicator, as do the replicas. `reference` sends every lane's bucket and adds
// them in lane order; the others add up a device's lanes first. Throws Error(kDevice) or Error(kPeer).
std::unique_ptr<Communicator> make_nccl_communicator(World& world, Replicas& replicas, DeviceStreams& streams,
                                                     const NcclOptions& options);

}  // namespace lanewise
