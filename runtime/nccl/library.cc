#include "runtime/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "graph/error.h"
#include "runtime/shared_library.h"

namespace lanewise {
namespace {

constexpr int kOldest = 21400;  // 2.14 made communicators non-blocking

}  // namespace

NcclLibrary::NcclLibrary(const std::string& path) : path_(path), library_(open_library(path, RTLD_NOW | RTLD_LOCAL)) {
  try {
    find(get_version, "ncclGetVersion");
    int version = 0;
    if (get_version(&version) != ncclSuccess || version < kOldest) {
      throw Error(Exit::kDevice, fmt::format("{} is NCCL {}, and has to be 2.14 or newer", path, version));
    }
    find(get_error_string, "ncclGetErrorString");
    find(get_last_error, "ncclGetLastError");
    find(get_unique_id, "ncclGetUniqueId");
    find(comm_init_rank_config, "ncclCommInitRankConfig");
    find(comm_get_async_error, "ncclCommGetAsyncError");
    find(comm_finalize, "ncclCommFinalize");
    find(comm_destroy, "ncclCommDestroy");
    find(comm_abort, "ncclCommAbort");
    find(all_reduce, "ncclAllReduce");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
  } catch (...) {
    ::dlclose(library_);
    throw;
  }
}

NcclLibrary::~NcclLibrary() { ::dlclose(library_); }

template <class F>
void NcclLibrary::find(F& function, const char* name) {
  function = reinterpret_cast<F>(::dlsym(library_, name));
  if (function == nullptr) throw Error(Exit::kDevice, fmt::format("{} has no {}; it is not NCCL", path_, name));
}

}  // namespace lanewise
