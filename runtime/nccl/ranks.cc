#include "runtime/nccl/ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
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
    issuing_.run([&] { clique_ = std::make_unique<NcclClique>(nccl_, *streams_, place); });
  }
  ~Impl() {
    issuing_.run([this] { clique_.reset(); });
  }

  void launch(const NcclSum& sum, const std::function<void()>& before) {
    issuing_.run([&] {
      if (failure_) std::rethrow_exception(failure_);
      issue(sum, before);
    });
  }
  void post(NcclSum sum, std::function<void()> before) {
    issuing_.post([this, sum = std::move(sum), before = std::move(before)] {
      if (failure_) return;
      try {
        issue(sum, before);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  void wait() {
    issuing_.run([&] {
      if (failure_) std::rethrow_exception(failure_);
    });
  }
  void finish(NcclRound round) {
    issuing_.run([&] { clique_->finish(round); });
  }

 private:
  void issue(const NcclSum& sum, const std::function<void()>& before) {
    before();
    clique_->launch(sum);
    streams_->launched();
  }

  const NcclLibrary nccl_;
  std::unique_ptr<DeviceStreams> streams_;
  std::unique_ptr<NcclClique> clique_;
  std::exception_ptr failure_;  // of what was posted; the issuing thread's
  WorkerThread issuing_;        // speaks for all ranks here
};

NcclRanks::NcclRanks(World& world, Accelerator& accelerator, std::vector<DeviceQueue*> queues, const Options& options)
    : impl_(std::make_unique<Impl>(world, accelerator, std::move(queues), options)) {}
NcclRanks::~NcclRanks() = default;

void NcclRanks::launch(const NcclSum& sum, const std::function<void()>& before) { impl_->launch(sum, before); }
void NcclRanks::post(NcclSum sum, std::function<void()> before) { impl_->post(std::move(sum), std::move(before)); }
void NcclRanks::wait() { impl_->wait(); }
void NcclRanks::finish(NcclRound round) { impl_->finish(round); }

}  // namespace lanewise
