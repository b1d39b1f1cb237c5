// What liblanewise_cuda.so is made of, and what it exports: the GPUs as an Accelerator. It is opened at run time, when
// a pipeline names a GPU, so that the command itself needs nothing of CUDA.
#pragma once

#include "runtime/devices/bucket_pass.h"

namespace lanewise {
class Accelerator;
}

// Launches run_bucket_pass() on a device's cudaStream_t, which is of the current device. Null, or what went wrong.
const char* lanewise_add_buckets(const lanewise::BucketPass& pass, void* stream);

// The caller owns it. `waiting_is_error`: runtime/devices/switches.h. Throws lanewise::Error(kDevice).
using lanewise_make_accelerator_function = lanewise::Accelerator*(bool waiting_is_error);
extern "C" lanewise_make_accelerator_function lanewise_make_accelerator;
