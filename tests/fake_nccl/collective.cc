// Collectives: what is checked when one is issued, and its launch on its stream.
#include "tests/fake_nccl/library.h"

namespace fake_nccl {
namespace {

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + bytes && y < x + bytes;
}

// Why the fake cannot do this; "" when it can.
std::string wrong_arguments(const Signature& what, int ranks) {
  if (what.type < 0 || what.type >= ncclNumTypes) return text(" of datatype ", what.type);
  if (!what.op) {
    const bool in_clique = what.root >= 0 && what.root < ranks;
    return in_clique ? "" : text(" from root ", what.root, " of ", ranks, " ranks");
  }
  if (*what.op < 0 || *what.op > ncclMin) return text(" with op ", *what.op, ", which the fake lacks");
  if (!info(what.type).combine) return text(" of ", info(what.type).name, ", which the fake lacks");
  return "";
}

}  // namespace

ncclResult_t Library::collective(Lock& lock, const Signature& what, const void* send, void* receive, ncclComm_t handle,
                                 cudaStream_t stream) {
  Thread& caller = thread();
  CommPtr comm;
  if (const ncclResult_t result = find(what.function, handle, comm); result != ncclSuccess) return result;
  const std::int64_t index = comm->issued;
  ++caller.group.depth;
  const ncclResult_t result = append(caller, comm, what, send, receive, stream);
  const ncclResult_t left = leave_with(result, lock, caller, what.function, comm);
  const ncclResult_t told = planned_error(kFakeNcclCallError, *comm, index).value_or(left);
  const bool known = result == ncclSuccess;
  record(caller, comm.get(), known ? text("#", index, " ", what.str()) : what.function, told);
  return told;
}

// Checks it, and puts it into the caller's group.
ncclResult_t Library::append(Thread& caller, const CommPtr& comm, const Signature& what, const void* send,
                             void* receive, cudaStream_t stream) {
  const std::string who = text(comm->name(), ": ", what.function);
  if (comm->issuer == 0) comm->issuer = caller.number;
  if (comm->issuer != caller.number) {
    broken(text(who, " #", comm->issued, " is issued by ", caller.str(), ", those before by thread ", comm->issuer,
                "; one thread must issue all of a communicator"));
    comm->issuer = caller.number;
  }
  if (const ncclResult_t result = ready(what.function, comm, true); result != ncclSuccess) return result;
  if (comm->finalize != Phase::kNone) return broken(text(who, " after ncclCommFinalize"));
  if (const std::string wrong = wrong_arguments(what, comm->clique->ranks()); !wrong.empty())
    return broken(who + wrong);
  if (what.count == 0) return ncclSuccess;  // NCCL drops it
  const bool sends = what.op || what.root == comm->rank;
  if (!receive || (sends && !send)) return broken(text(who, " #", comm->issued, " with a null buffer"));
  if (sends && send != receive && overlap(send, receive, what.bytes())) {
    return broken(text(who, " #", comm->issued, ": sendbuff and recvbuff overlap in part"));
  }
  if (const ncclResult_t result = join(caller, comm); result != ncclSuccess) return result;
  comm->in_group_of = caller.number;
  caller.group.ops.push_back({.comm = comm,
                              .what = what,
                              .index = comm->issued++,
                              .send = sends ? send : nullptr,
                              .receive = receive,
                              .stream = {stream, stream ? -1 : comm->device},
                              .stage = Op::Stage::kLaunched,
                              .due = {}});
  return ncclSuccess;
}

// The operation is on its stream from now on.
void Library::launch(const Op& op) {
  Comm& comm = *op.comm;
  Stream& stream = streams_[op.stream];
  if (stream.user && stream.user->device != comm.device) {
    broken(text(comm.name(), ": the stream of ", op.what.function, " #", op.index, " is that of ", stream.user->name(),
                ", on another device"));
    return comm.fail(ncclUnhandledCudaError);
  }
  stream.user = op.comm;
  Clique& clique = *comm.clique;
  for (const CommPtr& other : clique.members) {
    const bool ended =
        other && other->life != Life::kAborted && (other->finalize != Phase::kNone || other->life == Life::kDestroyed);
    if (!ended || other->issued > op.index) continue;
    broken(text(comm.name(), ": ", op.what.function, " #", op.index, ", but rank ", other->rank, " has ended after ",
                other->issued, " collectives"));
    comm.fail(ncclInvalidUsage);
  }
  const auto [at, first] =
      clique.collectives.try_emplace(op.index, Collective{.what = op.what, .first_rank = comm.rank});
  if (const std::string what = difference(at->second.what, op.what); !what.empty()) {
    broken(text(comm.name(), ": collective #", op.index, " is ", op.what.str(), ", and that of rank ",
                at->second.first_rank, " is ", at->second.what.str(), ": ", what, " differs"));
    for (const CommPtr& member : clique.members) {
      if (member) member->fail(ncclInvalidUsage);
    }
  }
  stream.ops.emplace_back(&comm, op.index);
  ++stream.launched;
  comm.ops.push_back(op);
  comm.ops.back().comm = nullptr;  // which would keep itself alive
}

}  // namespace fake_nccl
