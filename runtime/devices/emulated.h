// GPUs that are not there: each queue is a thread of the host that does its work in order, after random delays. What
// lanes on GPUs do is tested by them, since a wait that is missing between two queues gives wrong numbers here, too.
//
//   LANEWISE_EMULATED_GPUS=8         so many GPUs, for lanes on cuda:0 … cuda:7
//   LANEWISE_EMULATED_DELAY_US=200   each piece of work comes up to so many microseconds later
//   LANEWISE_EMULATED_NCCL=PATH      tests/fake_nccl, where lanes on several of them train together
//   LANEWISE_EMULATED_PART_BYTES=64  gradients are reduced in parts of at least so many bytes
//   LANEWISE_EMULATED_HANG=4:30      the 4th queue that is made never ends its 30th piece of work; a lane makes two, of
//                                    which the second is that of its rounds
#pragma once

#include <memory>

#include "runtime/devices/queue.h"

namespace lanewise {

// As the environment says; 0: the GPUs, if any, are real.
int emulated_gpus();

std::unique_ptr<Accelerator> make_emulated_accelerator();

}  // namespace lanewise
