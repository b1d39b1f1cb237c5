// Several processes on CPUs: Gloo for what they do together.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <c10/util/Flags.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "runtime/bounded.h"
#include "runtime/exchange.h"
#include "runtime/lane_sum.h"
#include "runtime/process_store.h"
#include "runtime/shared_rounds.h"
#include "runtime/world.h"

C10_DECLARE_int(caffe2_log_level);

namespace lanewise {
namespace {

// Loopback, or an address that is not routed through the internet.
bool is_private(const std::string& address) {
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
    const std::uint32_t a = ntohl(four.s_addr);
    return (a >> 24) == 127 || (a >> 24) == 10 || (a >> 20) == 0xAC1 || (a >> 16) == 0xC0A8 || (a >> 16) == 0xA9FE ||
           (a >> 22) == (0x64400000U >> 22);
  }
  const std::string bare = address.substr(0, address.find('%'));
  in6_addr six{};
  if (::inet_pton(AF_INET6, bare.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six) || (six.s6_addr[0] & 0xFE) == 0xFC;
}

std::shared_ptr<gloo::transport::Device> device(const ProcessPlace& place) {
  if (place.one_host) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  if (const char* const asked = std::getenv("GLOO_SOCKET_IFNAME"); asked != nullptr && *asked != '\0') {
    try {
      return c10d::ProcessGroupGloo::createDeviceForInterface(asked);
    } catch (const std::exception& error) {
      throw Error(Exit::kPeer, fmt::format("GLOO_SOCKET_IFNAME names the interface \"{}\", which cannot be used: {}",
                                           asked, first_line(error)));
    }
  }
  const std::string address = own_address_towards(place.address);
  if (!is_private(address)) {
    throw Error(Exit::kPeer, fmt::format("the way to {} goes through {}, which is a public address; name the interface "
                                         "to use in GLOO_SOCKET_IFNAME",
                                         place.address, address));
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

constexpr std::chrono::milliseconds kEnough{300};  // for what usually takes no time

class GlooWorld;

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(GlooWorld& world, const std::string& reduction)
      : world_(world),
        sums_(reduction == "reference"       ? Sums::kOfLanes
              : reduction == "deterministic" ? Sums::kOfProcesses
                                             : Sums::kByLibrary) {}
  ~GlooCommunicator() override;

  double reduce(Replicas& replicas, RoundOfStep round) override {
    return replicas.weights(0).scalar_type() == at::kDouble ? reduce_as<double>(replicas, round)
                                                            : reduce_as<float>(replicas, round);
  }
  const char* through() const override { return !begun_ ? "" : shared_ != nullptr ? "shared memory" : "gloo"; }
  std::string apart(const Replicas& replicas) override;

 private:
  // Every lane's bucket is gathered and added up here; or what each process's lanes add up to; or the library adds
  // that.
  enum class Sums { kOfLanes, kOfProcesses, kByLibrary };

  template <class T>
  double reduce_as(Replicas& replicas, RoundOfStep round);
  void prepare(const Replicas& replicas, std::size_t element);

  GlooWorld& world_;
  const Sums sums_;
  LaneSum sum_;
  bool begun_ = false;
  std::unique_ptr<SharedRounds> shared_;  // null: Gloo exchanges own_ and all_
  at::Tensor own_, all_;
};

class GlooWorld final : public World {
 public:
  GlooWorld(const ProcessPlace& place, const JoinOptions& options) : store_(place, options) {
    rank_ = place.rank;
    size_ = place.size;
    one_host_ = place.one_host;
    timeout_ = options.timeout;
    connect(place, options);
  }

  std::vector<std::string> gather(const std::string& own) override {
    const at::Tensor sizes = all_rows(at::tensor({static_cast<std::int64_t>(own.size())}, at::kLong));
    const auto longest = sizes.max().item<std::int64_t>();
    at::Tensor bytes = at::zeros({1, std::max<std::int64_t>(longest, 1)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
    const at::Tensor all = all_rows(bytes);
    std::vector<std::string> texts;
    for (int r = 0; r < size_; ++r) {
      texts.emplace_back(static_cast<const char*>(all[r].const_data_ptr()),
                         static_cast<std::size_t>(sizes[r].item<std::int64_t>()));
    }
    return texts;
  }

  bool break_off(bool here) override { return store_.break_off(here); }

  std::string from_first(const std::string& own) override {
    at::Tensor size = at::tensor({static_cast<std::int64_t>(own.size())}, at::kLong);
    broadcast(size);
    at::Tensor bytes = at::zeros({std::max<std::int64_t>(size.item<std::int64_t>(), 1)}, at::kByte);
    if (first()) std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
    broadcast(bytes);
    return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(size.item<std::int64_t>())};
  }

  at::Tensor gather_rows(const at::Tensor& own) override {
    const at::Tensor counts = all_rows(at::tensor({own.size(0)}, at::kLong));
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape[0] = counts.max().item<std::int64_t>();
    at::Tensor padded = at::zeros(shape, own.options());
    padded.narrow(0, 0, own.size(0)).copy_(own);
    const at::Tensor all = all_rows(padded.unsqueeze(0));
    std::vector<at::Tensor> rows;
    for (int r = 0; r < size_; ++r) rows.push_back(all[r].narrow(0, 0, counts[r].item<std::int64_t>()));
    return at::cat(rows);
  }

  std::unique_ptr<Communicator> communicator(const std::string& reduction) override {
    return std::make_unique<GlooCommunicator>(*this, reduction);
  }

  void tell_failure(Exit exit, const std::string& reason) override {
    store_.tell_failure(exit, reason, [this] { hang_up(); });
  }

  // Every process's `own`, of equal sizes, one below the other: [n, …] -> [n of all, …], or into `all`.
  void gather_into(at::Tensor& all, at::Tensor& own) {
    in_touch([&] { group_->_allgather_base(all, own)->wait(); });
  }
  void add_up(at::Tensor& values) {
    std::vector<at::Tensor> list = {values};
    in_touch([&] { group_->allreduce(list)->wait(); });
  }
  // From here to the end of `act`, what fails is said to fail in this round.
  template <class F>
  void in_round(std::uint64_t round, F&& act) {
    round_ = round;
    in_round_ = true;
    act();
    in_round_ = false;
  }
  // Null where the processes share no memory.
  std::unique_ptr<SharedRounds> share_rounds(std::size_t bytes) {
    std::unique_ptr<SharedRounds> shared = one_host_ ? SharedRounds::make(*this, bytes, timeout_) : nullptr;
    rounds_shared_ = shared.get();
    return shared;
  }
  void exchange(SharedRounds& shared) {
    in_touch([&] { shared.exchange(); });
  }
  void forget(const SharedRounds* shared) {
    if (rounds_shared_ == shared) rounds_shared_ = nullptr;
  }
  std::string name_of(int rank) const override { return store_.name_of(rank); }

 private:
  at::Tensor all_rows(at::Tensor own) {
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape[0] *= size_;
    at::Tensor all = at::empty(shape, own.options());
    gather_into(all, own);
    return all;
  }

  void broadcast(at::Tensor& tensor) {
    std::vector<at::Tensor> list = {tensor};
    in_touch([&] { group_->broadcast(list)->wait(); });
  }

  // Who is refused a connection notices at once, who waits for one by the timeout.
  void connect(const ProcessPlace& place, const JoinOptions& options) {
    using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
    const auto until = std::chrono::steady_clock::now() + options.timeout;
    try {
      auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
      gloo->devices.push_back(device(place));
      const auto made = bounded<Group>(options.timeout + kEnough, [gloo, store = store_.store(), place]() -> Group {
        return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                                           place.rank, place.size, gloo);
      });
      if (!made) throw std::runtime_error("the processes cannot be connected");
      group_ = *made;
    } catch (const Error& error) {  // of this process alone
      store_.tell_failure(error.exit(), fmt::format("{}: {}", name_of(rank_), error.what()));
      throw;
    } catch (const std::exception& error) {
      throw store_.what_happened(when(), first_line(error), {}, until);
    }
  }

  template <class F>
  void in_touch(F&& together) {
    try {
      if (!group_ && store_.failed()) throw std::runtime_error("this process has left");
      together();
    } catch (const Error&) {
      throw;
    } catch (const Missing& missing) {
      hang_up();
      throw store_.what_happened(when(), missing.what(), missing.ranks);
    } catch (const std::exception& error) {
      hang_up();
      throw store_.what_happened(when(), first_line(error));
    }
  }

  std::string when() const {
    if (!round_) return "before the first round";
    return fmt::format("{} round {}", in_round_ ? "in" : "after", *round_);
  }

  // Whoever waits for this process notices now, and not by a timeout.
  void hang_up() {
    if (rounds_shared_ != nullptr) rounds_shared_->close();
    const auto group = std::make_shared<c10::intrusive_ptr<c10d::ProcessGroupGloo>>(std::move(group_));
    bounded<bool>(kEnough, [group] {
      group->reset();
      return true;
    });
  }

  ProcessStore store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::optional<std::uint64_t> round_;  // the last that has begun
  bool in_round_ = false;
  bool one_host_ = false;
  std::chrono::milliseconds timeout_{};
  SharedRounds* rounds_shared_ = nullptr;  // the communicator's
};

GlooCommunicator::~GlooCommunicator() { world_.forget(shared_.get()); }

template <class T>
double GlooCommunicator::reduce_as(Replicas& replicas, RoundOfStep round) {
  const BucketLayout& layout = replicas.layout();
  const std::vector<const T*> lanes = buckets<T>(replicas);
  if (!begun_) prepare(replicas, sizeof(T));
  T* const own = shared_ != nullptr ? static_cast<T*>(shared_->own()) : own_.data_ptr<T>();
  if (sums_ == Sums::kOfLanes) {
    for (std::size_t i = 0; i < lanes.size(); ++i) std::copy_n(lanes[i], layout.size(), own + i * layout.size());
  } else {
    add_lanes<T>(lanes, 0, layout.size(), 1, own);
  }
  world_.in_round(round.number, [&] {
    if (shared_ != nullptr) {
      world_.exchange(*shared_);
    } else if (all_.defined()) {
      world_.gather_into(all_, own_);
    } else {
      world_.add_up(own_);
    }
  });
  if (shared_ == nullptr && !all_.defined()) return sum_.reduce<T>(std::vector<const T*>{own}, replicas, round);
  std::vector<const T*> all;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const T* const part = shared_ != nullptr ? static_cast<const T*>(shared_->part(rank))
                                             : all_.const_data_ptr<T>() + rank * own_.numel();
    const int count = sums_ == Sums::kOfLanes ? lanes_of(layout.lanes, rank, world_.size()).count() : 1;
    for (int i = 0; i < count; ++i) all.push_back(part + i * layout.size());
  }
  return sum_.reduce<T>(all, replicas, round);
}

// Before the first round, by all processes together.
void GlooCommunicator::prepare(const Replicas& replicas, std::size_t element) {
  const BucketLayout& layout = replicas.layout();
  const std::int64_t most = sums_ == Sums::kOfLanes ? (layout.lanes + world_.size() - 1) / world_.size() : 1;
  shared_ = world_.share_rounds(static_cast<std::size_t>(most * layout.size()) * element);
  begun_ = true;
  if (shared_ != nullptr) return;
  const at::TensorOptions options = replicas.parameter(0).options();
  own_ = at::zeros({most, layout.size()}, options);
  if (sums_ != Sums::kByLibrary) all_ = at::zeros({most * world_.size(), layout.size()}, options);
}

std::string GlooCommunicator::apart(const Replicas& replicas) { return weights_apart(world_, replicas); }

}  // namespace

std::unique_ptr<World> join_world(const ProcessPlace& place, const JoinOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    // LibTorch's flight recorder costs time at every operation, and threads that are processes (tests) race in it.
    ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
    // What goes wrong is told once, by us, and without LibTorch's stack.
    constexpr int kFatal = 3;
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
  });
  return std::make_unique<GlooWorld>(place, options);
}

}  // namespace lanewise
