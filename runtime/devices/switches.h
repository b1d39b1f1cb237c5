// What the environment says of lanes on GPUs, for measuring and for tests. Each throws Error(kCommandLine) where its
// variable is anything else.
#pragma once

namespace lanewise {

// LANEWISE_NCCL=always: NCCL reduces also where one GPU has all lanes, to try it there.
bool nccl_is_forced();

// LANEWISE_REPLAY=off: no round is recorded, to tell what recording does.
bool may_replay();

// LANEWISE_CUDA_SYNC=error: what would wait for a GPU in the middle of its work throws, to find it.
bool waiting_is_error();

// Looks at all of these, so that a misspelt one is told before anything is made.
void check_switches();

}  // namespace lanewise
