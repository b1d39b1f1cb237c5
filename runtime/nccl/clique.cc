#include "runtime/nccl/clique.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "graph/error.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFarewell{2000};
constexpr auto kSpin = std::chrono::microseconds(200);  // then polls rest in between
constexpr auto kRest = std::chrono::microseconds(50);

std::string text_of(NcclRound round) {
  return round.parts == 1 ? fmt::format("round {}", round.number)
                          : fmt::format("round {}, part {} of {}", round.number, round.part + 1, round.parts);
}

}  // namespace

std::string NcclClique::make_unique_id(const NcclLibrary& nccl) {
  ncclUniqueId id;
  if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess)
    throw Error(Exit::kPeer, fmt::format("NCCL gives no id for its ranks: {}", nccl.get_error_string(result)));
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

NcclClique::NcclClique(const NcclLibrary& nccl, DeviceStreams& streams, NcclPlace place)
    : nccl_(nccl),
      streams_(streams),
      place_(std::move(place)),
      communicators_(static_cast<std::size_t>(place_.count), nullptr),
      last_(communicators_.size()) {}

void NcclClique::connect() {
  const std::string doing = "while the ranks connect";
  ncclUniqueId id;
  if (place_.unique_id.size() != sizeof id) throw Error(Exit::kInternal, "that is no id of NCCL");
  std::memcpy(&id, place_.unique_id.data(), sizeof id);
  in_group(doing, {"connects"}, {"is connected"}, [&](int i) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    streams_.use(i);
    return nccl_.comm_init_rank_config(&communicators_[i], place_.all, id, place_.first + i, &config);
  });
}

NcclClique::~NcclClique() {
  if (communicators_.empty()) return;
  bool fine = !failed_;
  for (std::size_t i = 0; fine && i < communicators_.size(); ++i) {
    const ncclResult_t result = nccl_.comm_finalize(communicators_[i]);
    fine = result == ncclSuccess || result == ncclInProgress;
  }
  const Clock::time_point until = Clock::now() + kFarewell;
  for (const ncclComm_t one : communicators_) {
    ncclResult_t state = ncclInProgress;
    while (fine && nccl_.comm_get_async_error(one, &state) == ncclSuccess && state == ncclInProgress &&
           Clock::now() < until) {
      std::this_thread::sleep_for(kRest);
    }
    fine = fine && state == ncclSuccess;
  }
  if (!fine) {  // one that is in error, or at work, must not be destroyed
    abort();
    return;
  }
  for (const ncclComm_t one : communicators_) nccl_.comm_destroy(one);
}

void NcclClique::launch(const NcclSum& sum) {
  const std::string doing = "in " + text_of(sum.round);
  // Ready is launched: before that, a stream looks as if it had nothing to do.
  in_group(doing, {"enqueued", sum.round}, {"launched", sum.round}, [&](int i) {
    for (const NcclSum::Piece& piece : sum.pieces) {
      void* const at = static_cast<char*>(sum.buffers[i]) + piece.begin * (sum.is_double ? 8 : 4);
      const ncclResult_t result =
          nccl_.all_reduce(at, at, static_cast<std::size_t>(piece.count), sum.is_double ? ncclFloat64 : ncclFloat32,
                           ncclSum, communicators_[i], static_cast<cudaStream_t>(streams_.stream(i)));
      if (result != ncclSuccess && result != ncclInProgress) return result;
    }
    return ncclSuccess;
  });
}

void NcclClique::finish(NcclRound round) {
  const std::string doing = "in " + text_of(round);
  wait(Until::kDone, doing, {"reduced", round});
  streams_.finished();
}

void NcclClique::in_group(const std::string& doing, Event called, Event ready,
                          const std::function<ncclResult_t(int rank)>& call) {
  check(nccl_.group_start(), doing);
  ncclResult_t first = ncclSuccess;
  for (int i = 0; i < place_.count; ++i) {
    last_[i] = called;
    const ncclResult_t result = call(i);
    if (first == ncclSuccess || first == ncclInProgress) first = result;
  }
  const ncclResult_t end = nccl_.group_end();  // also after a failure: the thread's group is closed by it
  check(first, doing);
  check(end, doing);
  wait(Until::kReady, doing, ready);
}

// Until every communicator is ready for the next call, or has done what is in its stream. All are looked at again and
// again: an error of one is told to that one alone, and the others wait.
void NcclClique::wait(Until until, const std::string& doing, Event reached) {
  const Clock::time_point begun = Clock::now();
  while (true) {
    int waiting = -1;
    for (int i = 0; i < place_.count; ++i) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl_.comm_get_async_error(communicators_[i], &state);
      const ncclResult_t result = asked == ncclSuccess ? state : asked;
      if (result != ncclSuccess && result != ncclInProgress)
        fail(doing, fmt::format("{}: {}", place_.names[i], nccl_.get_error_string(result)));
      const bool over = result == ncclSuccess && (until == Until::kReady || streams_.done(i));
      if (over) last_[i] = reached;
      if (!over && waiting < 0) waiting = i;
    }
    if (waiting < 0) return;
    const auto waited = Clock::now() - begun;
    if (waited > place_.timeout) {
      const double seconds = static_cast<double>(place_.timeout.count()) / 1000;
      const std::string& who = place_.names[waiting];
      fail(doing, place_.count < place_.all
                      ? fmt::format("{} waits for others for more than {} s", who, seconds)
                      : fmt::format("{} is not done after {} s: a GPU, or the way between them, hangs or is slower "
                                    "than --peer-timeout allows",
                                    who, seconds));
    }
    if (waited > kSpin) std::this_thread::sleep_for(kRest);
  }
}

void NcclClique::check(ncclResult_t result, const std::string& doing) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const more = nccl_.get_last_error(nullptr);
  fail(doing, fmt::format("{}{}{}", nccl_.get_error_string(result), more != nullptr && *more != '\0' ? ": " : "",
                          more != nullptr ? more : ""));
}

void NcclClique::fail(const std::string& doing, const std::string& why) {
  failed_ = true;
  throw Error(Exit::kPeer,
              fmt::format("the reduction failed {}: {}; what the ranks here did last:\n{}", doing, why, recorded()));
}

void NcclClique::abort() {
  for (const ncclComm_t one : communicators_) {
    if (one != nullptr) nccl_.comm_abort(one);
  }
  communicators_.clear();
}

std::string NcclClique::recorded() const {
  std::string text;
  for (int i = 0; i < place_.count; ++i)
    text += fmt::format("  {}: {}, {}\n", place_.names[i], last_[i].what, text_of(last_[i].round));
  return text;
}

}  // namespace lanewise
