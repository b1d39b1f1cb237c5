// Unique ids, and communicators until they are about to be launched.
#include <cstring>

#include "tests/fake_nccl/library.h"

namespace fake_nccl {
namespace {

// An id is its number and bytes that follow from it, none of which may be lost on the way to another rank.
void fill(ncclUniqueId& id, std::uint64_t number) {
  std::memcpy(id.internal, &number, sizeof(number));
  for (std::size_t i = sizeof(number); i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(mixed(number * 1000 + i));
  }
}

}  // namespace

ncclResult_t Library::unique_id(ncclUniqueId* id) {
  if (!id) return broken("ncclGetUniqueId into a null pointer");
  fill(*id, next_id_++);
  return ncclSuccess;
}

ncclResult_t Library::init(Lock& lock, const char* call, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                           const ncclConfig_t* config) {
  Thread& caller = thread();
  if (!out) return broken(text(call, " into a null pointer"));
  *out = nullptr;
  ++caller.group.depth;
  const ncclResult_t result = begin_init(caller, out, ranks, id, rank, config);
  const CommPtr comm = *out ? comms_.at(*out) : nullptr;
  const ncclResult_t told = leave_with(result, lock, caller, call, comm);
  record(caller, comm.get(), text(call, " of ", ranks), told);
  return told;
}

ncclResult_t Library::begin_init(Thread& caller, ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                                 const ncclConfig_t* config) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return broken(text("init of rank ", rank, " of ", ranks));
  int blocking = 1;
  if (config) {
    if (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t) || config->version != kVersion) {
      return broken(text("init of rank ", rank, ": its config was not made by NCCL_CONFIG_INITIALIZER of ", kVersion));
    }
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) blocking = config->blocking;
    if (blocking != 0 && blocking != 1) {
      return broken(text("init of rank ", rank, ": config.blocking is ", blocking, ", not 0 or 1"));
    }
  }
  std::shared_ptr<Clique> clique;
  if (const ncclResult_t result = clique_of(id, ranks, rank, clique); result != ncclSuccess) return result;

  const auto comm = std::make_shared<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = caller.device.value_or(rank);
  comm->blocking = blocking == 1;
  *out = reinterpret_cast<ncclComm_t>(next_handle_++ * kHandle);
  comms_[*out] = comm;
  live_.push_back(comm);
  check_initialised(caller, comm);
  clique->members[rank] = comm;
  caller.group.inits.push_back(comm);
  return join(caller, comm);
}

// The clique of a unique id, which is new with its first rank and must lack this one.
ncclResult_t Library::clique_of(const ncclUniqueId& id, int ranks, int rank, std::shared_ptr<Clique>& found) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  ncclUniqueId same;
  fill(same, number);
  if (number < first_id_ || number >= next_id_ || std::memcmp(&same, &id, sizeof(id)) != 0) {
    return broken(
        text("init of rank ", rank, ": its unique id is not one of ncclGetUniqueId, or has changed on the way"));
  }
  std::shared_ptr<Clique>& clique = cliques_[number];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->number = static_cast<int>(cliques_.size());
    clique->members.resize(ranks);
  }
  if (clique->ranks() != ranks) {
    return broken(text("init of rank ", rank, " of ", ranks, ": the unique id is that of ", clique->ranks(), " ranks"));
  }
  if (clique->members[rank]) {
    return broken(text("init of rank ", rank, ": it has come before with this unique id"), ncclInvalidUsage);
  }
  found = clique;
  return ncclSuccess;
}

// One group holds all ranks of a thread, and each has a device of its own.
void Library::check_initialised(const Thread& caller, const CommPtr& comm) {
  Clique& clique = *comm->clique;
  const int group = caller.group.number > 0 ? caller.group.number : -comm->rank - 1;
  const auto [before, first] = clique.initialised_by.try_emplace(caller.number, group, comm->rank);
  if (!first && before->second.first != group) {
    broken(text("missing group: ", caller.str(), " initialises ", comm->name(), " apart from rank ",
                before->second.second, "; one group must hold all ranks of a thread"));
  }
  for (const CommPtr& other : clique.members) {
    if (!other || other->device != comm->device) continue;
    broken(text(comm->name(), ": device ", comm->device, " is also that of rank ", other->rank));
    other->fail(ncclInvalidUsage);
    comm->fail(ncclInvalidUsage);
  }
}

}  // namespace fake_nccl
