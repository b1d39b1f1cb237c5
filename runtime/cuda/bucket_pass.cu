// The pass over the buckets of a GPU's lanes (runtime/devices/bucket_pass.h). Not verified on a GPU.
//
// Every thread adds up its elements over the inputs in their order, in double. Each block adds the squares of its
// results in a tree; the block that is done last adds up the blocks' sums in their order, and decides. So the bits
// depend on nothing but the layout.
#include <cuda_runtime_api.h>

#include "runtime/cuda/library.h"

namespace {

using lanewise::BucketPass;
using lanewise::BucketPlaces;
using lanewise::Flag;

constexpr int kThreads = 256;

struct Workspace {
  unsigned* done;   // blocks that are
  double* squares;  // of each block's results
  unsigned* bad;    // an input holds what is not finite
};

__device__ Workspace workspace_of(const BucketPass& pass) {
  char* const at = static_cast<char*>(pass.workspace);
  return {reinterpret_cast<unsigned*>(at), reinterpret_cast<double*>(at + 8),
          reinterpret_cast<unsigned*>(at + lanewise::bucket_pass_flags_at(pass.places.parameters))};
}

// The sum of a value of each thread, in a fixed order; in all threads.
__device__ double sum_of_block(double value) {
  __shared__ double values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = values[0];
  __syncthreads();
  return sum;
}

template <class T>
struct Inputs {
  const BucketPass& pass;
  const Workspace& workspace;

  // Over all inputs, and the step's rounds so far; notes what is not finite.
  __device__ double total(std::int64_t i, bool note) const {
    double sum = 0;
    for (int j = 0; j < pass.input_count; ++j) {
      const T value = static_cast<const T*>(pass.inputs[j])[i];
      if (note && pass.lane_of != nullptr && !isfinite(value)) workspace.bad[j] = 1;
      sum += value;
    }
    return pass.sums != nullptr && !pass.first ? pass.sums[i] + sum : sum;
  }
};

// The tail, the flags of what is not finite, and what the round came to: by one block, after all others.
template <class T>
__device__ void finish(const BucketPass& pass, const Workspace& workspace, int blocks, double n) {
  const BucketPlaces& at = pass.places;
  T* const out = static_cast<T*>(pass.out);
  const Inputs<T> inputs{pass, workspace};
  for (std::int64_t i = at.parameters + threadIdx.x; i < at.size(); i += kThreads) {
    const double value = inputs.total(i, true);
    if (pass.sums != nullptr) pass.sums[i] = value;
    out[i] = static_cast<T>(value);
  }
  __syncthreads();
  for (int j = threadIdx.x; pass.lane_of != nullptr && j < pass.input_count; j += kThreads) {
    const volatile unsigned* const bad = workspace.bad + j;
    if (*bad == 0) continue;
    const std::int64_t flag = at.flag_at(pass.lane_of[j], Flag::kNonFinite);  // another one for each input
    out[flag] += 1;
    if (pass.sums != nullptr) pass.sums[flag] += 1;
    workspace.bad[j] = 0;
  }
  if (threadIdx.x == 0) *workspace.done = 0;
  __syncthreads();
  if (!pass.divides) return;

  int cut = 0, going = 0, bad = 0;
  for (int lane = threadIdx.x; lane < at.lanes; lane += kThreads) {
    cut |= out[at.flag_at(lane, Flag::kCut)] != 0;
    going |= out[at.flag_at(lane, Flag::kEnded)] == 0;
    bad |= out[at.flag_at(lane, Flag::kNonFinite)] != 0;
  }
  cut = __syncthreads_or(cut);
  going = __syncthreads_or(going);
  bad = __syncthreads_or(bad);
  if (threadIdx.x != 0) return;
  double squares = 0;
  const volatile double* const parts = workspace.squares;
  for (int b = 0; pass.last && n != 0 && b < blocks; ++b) squares += parts[b];
  const bool held = cut || !going || (pass.votes && (bad || !isfinite(squares)));
  pass.outcome[lanewise::kOutcomeN] = n;
  pass.outcome[lanewise::kOutcomeNorm] = sqrt(squares);
  pass.holds[0] = held || n == 0;
  pass.holds[1] = held;
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_buckets(const BucketPass pass) {
  const BucketPlaces& at = pass.places;
  const Workspace workspace = workspace_of(pass);
  const Inputs<T> inputs{pass, workspace};
  double n = 0;
  if (pass.divides) {
    for (int s = threadIdx.x; s < at.streams; s += kThreads) n += inputs.total(at.weight_at(s), false);
    n = sum_of_block(n);
  }
  const double scale = !pass.divides ? 1 : n == 0 ? 0 : 1 / n;
  double squares = 0;
  for (std::int64_t i = pass.begin + std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pass.end;
       i += std::int64_t{gridDim.x} * kThreads) {
    const double value = inputs.total(i, true);
    if (pass.sums != nullptr) pass.sums[i] = value;
    if (pass.divides && !pass.last) continue;
    const T result = pass.divides && n == 0 ? T(0) : static_cast<T>(value * scale);
    static_cast<T*>(pass.out)[i] = result;
    squares += double{result} * double{result};
  }
  squares = sum_of_block(squares);
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    workspace.squares[blockIdx.x] = squares;
    __threadfence();
    is_last = atomicAdd(workspace.done, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (!pass.tail) {
    if (threadIdx.x == 0) *workspace.done = 0;
    return;
  }
  finish<T>(pass, workspace, gridDim.x, n);
}

}  // namespace

const char* lanewise_add_buckets(const BucketPass& pass, void* stream) {
  const int blocks = lanewise::bucket_pass_blocks(pass.end - pass.begin);
  if (pass.is_double) {
    add_buckets<double><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(pass);
  } else {
    add_buckets<float><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(pass);
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
