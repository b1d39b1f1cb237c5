#include "runtime/nccl/ranks.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <future>
#include <mutex>
#include <utility>

#include "runtime/devices/worker_thread.h"
#include "runtime/nccl/clique.h"

namespace lanewise {
namespace {

// NCCL chooses by message size and machine, NVLS adds in an order of its own; what it is told in the environment before
// it starts, it keeps to. What the user has set stays.
void fix_algorithm(bool deterministic) {
  if (!deterministic) return;
  for (const auto& [name, value] :
       {std::pair("NCCL_ALGO", "Ring"), std::pair("NCCL_PROTO", "Simple"), std::pair("NCCL_NVLS_ENABLE", "0")}) {
    ::setenv(name, value, /*overwrite=*/0);
  }
}

}  // namespace

class NcclRanks::Impl {
 public:
  Impl(World& world, Accelerator& accelerator, std::vector<DeviceQueue*> queues, const Options& options)
      : nccl_((fix_algorithm(options.deterministic), accelerator.nccl())) {
    NcclPlace place;
    place.count = static_cast<int>(queues.size());
    place.all = 0;
    const std::vector<std::string> counts = world.gather(std::to_string(place.count));
    for (int r = 0; r < world.size(); ++r) {
      if (r == world.rank()) place.first = place.all;
      place.all += std::stoi(counts[r]);
    }
    for (int i = 0; i < place.count; ++i)
      place.names.push_back(fmt::format("rank {} ({})", place.first + i, options.names[i]));
    place.timeout = options.timeout;
    place.unique_id = world.from_first(world.first() ? NcclClique::make_unique_id(nccl_) : "");
    streams_ = accelerator.streams(std::move(queues), place.first);
    clique_ = std::make_unique<NcclClique>(nccl_, *streams_, place);
  }

  // Whether the ranks part within this time.
  bool part(std::chrono::seconds timeout) {
    const auto parted = std::make_shared<std::promise<void>>();
    issuing_.post([this, parted] {
      clique_.reset();
      parted->set_value();
    });
    return parted->get_future().wait_for(timeout) == std::future_status::ready;
  }

  void connect() {
    post([this] { clique_->connect(); });
    wait();
  }
  void launch(const NcclSum& sum, const std::function<void()>& before) {
    post([&] { issue(sum, before); });
    wait();
  }
  void post(NcclSum sum, std::function<void()> before) {
    post([this, sum = std::move(sum), before = std::move(before)] { issue(sum, before); });
  }
  void finish(NcclRound round) {
    post([&] { clique_->finish(round); });
    wait();
  }
  // Returns when all that was posted is done. Throws what has failed, without waiting for the abort that follows.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failure_ != nullptr || done_ == posted_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // After the first failure nothing is done any more, and the references that `act` holds may be gone.
  void post(std::function<void()> act) {
    const std::lock_guard lock(mutex_);
    ++posted_;
    issuing_.post([this, act = std::move(act)] {
      if (failed()) return;
      std::exception_ptr failure;
      try {
        act();
      } catch (...) {
        failure = std::current_exception();
      }
      {
        const std::lock_guard end(mutex_);
        failure_ = failure;
        ++done_;
      }
      changed_.notify_all();
      if (failure) clique_->abort();
    });
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }
  void issue(const NcclSum& sum, const std::function<void()>& before) {
    before();
    clique_->launch(sum);
    streams_->launched();
  }

  const NcclLibrary nccl_;
  std::unique_ptr<DeviceStreams> streams_;
  std::unique_ptr<NcclClique> clique_;
  std::mutex mutex_;            // guards what follows
  std::exception_ptr failure_;  // the first
  std::uint64_t posted_ = 0, done_ = 0;
  std::condition_variable changed_;
  WorkerThread issuing_;  // speaks for all ranks here
};

NcclRanks::NcclRanks(World& world, Accelerator& accelerator, std::vector<DeviceQueue*> queues, const Options& options)
    : impl_(new Impl(world, accelerator, std::move(queues), options)) {
  impl_->connect();
}
NcclRanks::~NcclRanks() = default;

void NcclRanks::Part::operator()(Impl* impl) const {
  constexpr std::chrono::seconds kFarewell{3};
  if (impl->part(kFarewell)) delete impl;
}

void NcclRanks::launch(const NcclSum& sum, const std::function<void()>& before) { impl_->launch(sum, before); }
void NcclRanks::post(NcclSum sum, std::function<void()> before) { impl_->post(std::move(sum), std::move(before)); }
void NcclRanks::wait() { impl_->wait(); }
void NcclRanks::finish(NcclRound round) { impl_->finish(round); }

}  // namespace lanewise
