// The fake NCCL's exported functions; see fake_nccl.h. Its answers follow the source of NCCL 2.28.9 (init.cc, group.cc,
// enqueue.cc).
//
//   fake_nccl.cc             each function takes the mutex and asks the Library
//   library.h, library.cc    the Library: all state, the mutex, what every call uses, questions, reset
//   init.cc, group.cc, collective.cc, end.cc, runner.cc    its other calls and its background thread
//   comm.h, group.h          what the Library keeps: cliques, communicators, operations; threads, groups
//   signature.h, plan.h, notes.h    arguments and arithmetic; faults and delays; violations and calls
#include "tests/fake_nccl/fake_nccl.h"

#include <nccl.h>

#include <cstring>

#include "tests/fake_nccl/library.h"

using fake_nccl::Comm;
using fake_nccl::library;
using fake_nccl::Lock;

// All else is compiled as hidden (CMakeLists.txt).
#pragma GCC visibility push(default)
extern "C" {

// ---- NCCL

ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = fake_nccl::kVersion;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

// As NCCL's: the last error of any communicator. The text stays valid as long as the library is open.
const char* ncclGetLastError(ncclComm_t) {
  Lock lock(library().mutex);
  return library().notes.last_error();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Lock lock(library().mutex);
  return library().unique_id(id);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Lock lock(library().mutex);
  return library().init(lock, "ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  Lock lock(library().mutex);
  return library().init(lock, "ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().finalize(lock, comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().destroy(lock, comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Lock lock(library().mutex);
  return library().abort(lock, comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  Lock lock(library().mutex);
  return library().async_error(comm, result);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  Lock lock(library().mutex);
  return library().ask("ncclCommCount", comm, count, [](const Comm& it) { return it.clique->ranks(); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  Lock lock(library().mutex);
  return library().ask("ncclCommCuDevice", comm, device, [](const Comm& it) { return it.device; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  Lock lock(library().mutex);
  return library().ask("ncclCommUserRank", comm, rank, [](const Comm& it) { return it.rank; });
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  Lock lock(library().mutex);
  return library().collective(lock, {"ncclAllReduce", count, type, op, -1}, send, receive, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  Lock lock(library().mutex);
  return library().collective(lock, {"ncclBroadcast", count, type, {}, root}, send, receive, comm, stream);
}

ncclResult_t ncclGroupStart() {
  Lock lock(library().mutex);
  library().group_start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Lock lock(library().mutex);
  return library().group_end(lock);
}

// ---- the control interface

void fake_nccl_reset() { library().reset(); }

void fake_nccl_set_delay(std::uint64_t seed, int max_us) {
  Lock lock(library().mutex);
  library().plan.set_delay(seed, max_us);
}

void fake_nccl_set_patience(int ms) {
  Lock lock(library().mutex);
  library().patience_ms = ms;
}

void fake_nccl_set_device(int device) {
  Lock lock(library().mutex);
  library().thread().device = device;
}

bool fake_nccl_inject(FakeNcclFault fault, int rank, std::int64_t at, std::int64_t value) {
  Lock lock(library().mutex);
  return library().plan.add({fault, rank, at, value});
}

bool fake_nccl_stream_done(const void* stream) {
  Lock lock(library().mutex);
  return library().stream_done(stream);
}

void fake_nccl_open_stream(const void* stream, std::int64_t count) {
  Lock lock(library().mutex);
  library().open_stream(stream, count);
}

std::int64_t fake_nccl_stream_launched(const void* stream) {
  Lock lock(library().mutex);
  return library().stream_launched(stream);
}

std::int64_t fake_nccl_stream_completed(const void* stream) {
  Lock lock(library().mutex);
  return library().stream_completed(stream);
}

char* fake_nccl_violations() {
  Lock lock(library().mutex);
  return ::strdup(library().notes.violations().c_str());
}

char* fake_nccl_live() {
  Lock lock(library().mutex);
  return ::strdup(library().live().c_str());
}

char* fake_nccl_events() {
  Lock lock(library().mutex);
  return ::strdup(library().notes.events().c_str());
}
}
#pragma GCC visibility pop
