#include "runtime/nccl/communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <future>
#include <thread>

#include "runtime/lane_sum.h"

namespace lanewise {
namespace {

// Runs what it is given on a thread of its own, always the same.
class OneThread {
 public:
  OneThread() : thread_([this](const std::stop_token& stop) { work(stop); }) {}
  ~OneThread() {
    thread_.request_stop();
    wake_.notify_all();
  }

  // Returns when `act` has, or throws what it throws.
  void run(std::function<void()> act) {
    std::packaged_task<void()> task(std::move(act));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      task_ = std::move(task);
    }
    wake_.notify_all();
    done.get();
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [this] { return task_.valid(); })) {
      std::packaged_task<void()> task = std::exchange(task_, {});
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards task_
  std::condition_variable_any wake_;
  std::packaged_task<void()> task_;
  std::jthread thread_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, Replicas& replicas, DeviceStreams& streams, const NcclOptions& options)
      : nccl_(options.library), reference_(options.reduction == "reference") {
    const BucketLayout& layout = replicas.layout();
    NcclPlace place;
    place.count = replicas.domain_count();
    place.all = 0;
    const std::vector<std::string> counts = world.gather(std::to_string(place.count));
    for (int r = 0; r < world.size(); ++r) {
      if (r == world.rank()) place.first = place.all;
      place.all += std::stoi(counts[r]);
    }
    for (int d = 0; d < place.count; ++d) {
      place.names.push_back(
          fmt::format("rank {} (lanes {} on)", place.first + d, lanes_of_domain(replicas, d).front()));
      buffers_.push_back(at::zeros({reference_ ? layout.lanes : 1, layout.size}, replicas.weights(d).options()));
    }
    sums_.resize(static_cast<std::size_t>(place.count));
    place.timeout = options.timeout;
    place.unique_id = world.from_first(world.first() ? NcclClique::make_unique_id(nccl_) : "");
    issuing_.run([&] { clique_ = std::make_unique<NcclClique>(nccl_, streams, place); });
  }
  ~NcclCommunicator() override {
    issuing_.run([this] { clique_.reset(); });
  }

  const char* through() const override { return "nccl"; }

  double reduce(Replicas& replicas, RoundOfStep round) override {
    return replicas.weights(0).scalar_type() == at::kDouble ? reduce_as<double>(replicas, round, ncclFloat64)
                                                            : reduce_as<float>(replicas, round, ncclFloat32);
  }

 private:
  // The lanes of this process whose weights are in a domain.
  static std::vector<int> lanes_of_domain(const Replicas& replicas, int domain) {
    std::vector<int> lanes;
    for (int i = 0; i < replicas.lane_count(); ++i) {
      if (replicas.domain_count() == 1 || i == domain) lanes.push_back(replicas.first_lane() + i);
    }
    return lanes;
  }

  template <class T>
  double reduce_as(Replicas& replicas, RoundOfStep round, ncclDataType_t type) {
    const BucketLayout& layout = replicas.layout();
    for (int d = 0; d < replicas.domain_count(); ++d) pack<T>(replicas, d);
    std::vector<void*> data;
    for (const at::Tensor& buffer : buffers_) data.push_back(buffer.mutable_data_ptr());
    const auto count = static_cast<std::size_t>(buffers_[0].numel());
    issuing_.run([&] { clique_->all_reduce(data, count, type, round.number); });
    double n = 0;
    for (int d = 0; d < replicas.domain_count(); ++d) {
      std::vector<const T*> parts;
      for (std::int64_t i = 0; i < buffers_[d].size(0); ++i)
        parts.push_back(static_cast<const T*>(buffers_[d].const_data_ptr()) + i * layout.size);
      n = sums_[d].template add<T>(parts, layout, round, static_cast<T*>(replicas.reduced(d).mutable_data_ptr()));
    }
    return n;
  }

  // What a rank gives. Lanes of other ranks are zero, so that the sum is a gather.
  template <class T>
  void pack(Replicas& replicas, int domain) {
    const BucketLayout& layout = replicas.layout();
    T* const to = static_cast<T*>(buffers_[domain].mutable_data_ptr());
    std::vector<const T*> lanes;
    if (reference_) std::fill_n(to, buffers_[domain].numel(), T{0});
    for (const int lane : lanes_of_domain(replicas, domain)) {
      const T* const bucket = static_cast<const T*>(replicas.bucket(lane).const_data_ptr());
      lanes.push_back(bucket);
      if (reference_) std::copy_n(bucket, layout.size, to + lane * layout.size);
    }
    if (!reference_) add_lanes<T>(lanes, 0, layout.size, 1, to);
  }

  const NcclLibrary nccl_;
  const bool reference_;
  std::vector<at::Tensor> buffers_;  // a domain each: [1 or lanes, bucket]
  std::vector<LaneSum> sums_;        // a domain each
  OneThread issuing_;
  std::unique_ptr<NcclClique> clique_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world, Replicas& replicas, DeviceStreams& streams,
                                                     const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(world, replicas, streams, options);
}

}  // namespace lanewise
