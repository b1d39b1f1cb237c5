// The fake NCCL: a library that tests open by dlopen in place of libnccl.so.2, and the functions by which they control
// it (reached by dlsym, as NCCL's own are).
//
// It has the ABI of NCCL 2.28.9 and runs all ranks of a clique in one process, on plain host memory, without a GPU.
// Streams are opaque pointers of the caller's. One background thread does all that NCCL and the devices would do later:
// it connects ranks, launches groups of non-blocking communicators and moves data, each after a delay. What NCCL leaves
// undefined, or answers with a hang, is a violation here: noted in words, answered with an error code or, where a
// blocking call would wait for ever, with ncclInternalError after a bounded wait.
//
// All functions may be called from any thread, but for fake_nccl_reset(). Texts belong to the caller, who frees them
// with free(); each line ends in a newline, and "" means that there is nothing to tell. Threads are numbered from 1 in
// the order of their first call, cliques in the order of their first rank; "rank 2" is one of clique 1.
#pragma once

#include <cstdint>

// Where a fault strikes: at the n-th collective of a communicator (n >= 0, counted from 0), or at one of these.
inline constexpr std::int64_t kFakeNcclAtInit = -1;
inline constexpr std::int64_t kFakeNcclAtFinalize = -2;
inline constexpr std::int64_t kFakeNcclAtAbort = -3;

enum FakeNcclFault : int {
  // The communicator fails with the ncclResult_t `value`: ncclCommGetAsyncError tells it, blocking calls return it. Its
  // peers are told nothing and wait until they are aborted. At init, finalize or a collective, once it has begun.
  kFakeNcclError = 0,
  // It never comes to an end. At init, finalize or a collective; `value` is not used.
  kFakeNcclHang = 1,
  // It takes `value` milliseconds longer. Anywhere; an abort that is late ends nothing before it returns.
  kFakeNcclLate = 2,
  // The call that would launch it, ncclGroupEnd as a rule, returns the ncclResult_t `value` and launches nothing; all
  // communicators of the group are in that error. At a collective.
  kFakeNcclLaunchError = 3,
  // The same, but a non-blocking group says ncclInProgress first and ncclCommGetAsyncError tells it. At a collective.
  kFakeNcclLaterLaunchError = 4,
  // The rank receives a result whose bit `value` is flipped, counted from the lowest bit of the first byte. At a
  // collective.
  kFakeNcclCorrupt = 5,
  // The call that issues it, ncclAllReduce as a rule, returns the ncclResult_t `value`, and nothing else tells it: the
  // collective goes on as if nothing were. At a collective.
  kFakeNcclCallError = 6,
  // The same of the ncclGroupEnd that would launch it. At a collective.
  kFakeNcclEndError = 7,
};

extern "C" {

// Back to the state after dlopen: background thread joined, faults, texts and communicators gone. Handles and ids of
// before are refused ever after. No other thread may be in the library meanwhile. To be called between tests and before
// dlclose.
void fake_nccl_reset();

// Each wait of the background thread takes up to `max_us` microseconds, by (seed, rank, index of the collective); 0, as
// after a reset, is as soon as can be.
void fake_nccl_set_delay(std::uint64_t seed, int max_us);

// How many milliseconds a blocking call waits before its being stuck is noted as a violation; 2000 after a reset.
void fake_nccl_set_patience(int ms);

// The calling thread's current device, as cudaSetDevice would set it; a communicator's device is that of its init.
// Threads that never call this make communicators whose device is their rank.
void fake_nccl_set_device(int device);

// Plans a fault for the next communicator of this rank that comes to `at`; it strikes once. False: no such fault there.
bool fake_nccl_inject(FakeNcclFault fault, int rank, std::int64_t at, std::int64_t value);

// As cudaStreamQuery: has all completed that was launched on this cudaStream_t? True for a stream never used and, as in
// CUDA, for one on which a non-blocking group is about to launch and has not yet; operations of an aborted communicator
// are complete. Null means the default streams of all devices.
bool fake_nccl_stream_done(const void* stream);

// A stream has other work, too, between its collectives: of those that were ever launched on it, `count` may begin, and
// the others wait for another call of this. Without any call none waits. Not for the null stream.
void fake_nccl_open_stream(const void* stream, std::int64_t count);

// Collectives that were ever launched on it, and of these those that are complete.
std::int64_t fake_nccl_stream_launched(const void* stream);
std::int64_t fake_nccl_stream_completed(const void* stream);

// The rules that were broken, a line each, the first 256.
char* fake_nccl_violations();

// What has not been given back: a line for each communicator neither destroyed nor aborted, and for each thread with an
// open group.
char* fake_nccl_live();

// The last 256 calls, a line each, without those that only ask.
char* fake_nccl_events();
}
