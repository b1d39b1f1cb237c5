// Several processes on CPUs: a c10d store to meet in, and Gloo for what they do together.
//
//   store            key                holds
//   meeting          here.R             times that rank R came: more than one is a mistake
//                    agrees.R           what it was started with
//   after a fault    failure            the first failure that was told: {exit, reason}
//                    left.R             rank R noticed, and is still there to say so
//
// Gloo says that a connection is gone, not whose. So each process that notices says in the store that it is there; who
// does not within a moment is the one that is gone.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/lane_sum.h"
#include "runtime/world.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kNotice{1200};  // that processes have to say that they are still there
constexpr milliseconds kPoll{20};

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// The first line of what a library says; the rest is its own stack.
std::string first_line(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

// This host's address on the way to `host`. Nothing is sent.
std::string own_address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (const int error = ::getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    throw Error(Exit::kPeer, fmt::format("the host \"{}\" (MASTER_ADDR) is not known here: {}", host,
                                         error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool known = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    ::close(fd);
    char text[NI_MAXHOST];
    if (known &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  throw Error(Exit::kPeer, fmt::format("there is no way from here to the host \"{}\" (MASTER_ADDR)", host));
}

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
    return c10d::ProcessGroupGloo::createDeviceForInterface(asked);
  }
  const std::string address = own_address_towards(place.address);
  if (!is_private(address)) {
    throw Error(Exit::kPeer, fmt::format("the way to {} goes through {}, which is a public address; name the interface "
                                         "to use in GLOO_SOCKET_IFNAME",
                                         place.address, address));
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

bool serves(const ProcessPlace& place) { return place.rank == 0 && !place.agent_serves; }

c10::intrusive_ptr<c10d::Store> open_store(const ProcessPlace& place, milliseconds timeout) {
  own_address_towards(place.address);  // an unknown host is said at once
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = serves(place);
    options.numWorkers = place.size;
    options.waitWorkers = false;
    options.timeout = timeout;
    auto tcp = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    return c10::make_intrusive<c10d::PrefixStore>("lanewise/" + place.attempt, tcp);
  } catch (const std::exception& error) {
    if (serves(place)) {
      throw Error(Exit::kPeer,
                  fmt::format("the store of the processes cannot be opened at {}:{}: {}; is the port taken? "
                              "MASTER_PORT names another",
                              place.address, place.port, first_line(error)));
    }
    throw Error(Exit::kPeer,
                fmt::format("{} does not answer at {}:{} within {} s: {}; is it running, and are MASTER_ADDR and "
                            "MASTER_PORT its own?",
                            place.agent_serves ? "torchrun's store" : "rank 0, which holds the store of the processes,",
                            place.address, place.port, seconds(timeout), first_line(error)));
  }
}

std::string as_failure(Exit exit, const std::string& reason) {
  return nlohmann::json({{"exit", static_cast<int>(exit)}, {"reason", reason}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class GlooWorld;

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(GlooWorld& world, bool reference) : world_(world), reference_(reference) {}

  double reduce(Replicas& replicas, RoundOfStep round) override {
    return replicas.weights(0).scalar_type() == at::kDouble ? reduce_as<double>(replicas, round)
                                                            : reduce_as<float>(replicas, round);
  }
  void verify(const Replicas& replicas) override;

 private:
  template <class T>
  double reduce_as(Replicas& replicas, RoundOfStep round);

  GlooWorld& world_;
  const bool reference_;  // every lane's bucket is gathered; otherwise the sums of each process's lanes are added up
  LaneSum sum_;
  at::Tensor own_, all_;
};

class GlooWorld final : public World {
 public:
  GlooWorld(const ProcessPlace& place, const JoinOptions& options) : options_(options) {
    rank_ = place.rank;
    size_ = place.size;
    const auto started = Clock::now();
    serves_ = serves(place);
    store_ = open_store(place, options_.timeout);
    meet(started);
    agree();
    in_touch([&] {
      auto gloo = c10d::ProcessGroupGloo::Options::create(options_.timeout);
      gloo->devices.push_back(device(place));
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store_),
                                                           rank_, size_, gloo);
    });
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
    return std::make_unique<GlooCommunicator>(*this, reduction == "reference");
  }

  void tell_failure(Exit exit, const std::string& reason) override {
    try {
      store_->setTimeout(kNotice);
      store_->compareSet("failure", {}, bytes_of(as_failure(exit, reason)));
      if (serves_) stay_until_noticed();
    } catch (const std::exception&) {  // the others see that this process is gone
    }
  }

  // Every process's `own`, of equal sizes, one below the other: [n, …] -> [n of all, …], or into `all`.
  void gather_into(at::Tensor& all, at::Tensor& own) {
    in_touch([&] { group_->_allgather_base(all, own)->wait(); });
  }
  void add_up(at::Tensor& values) {
    std::vector<at::Tensor> list = {values};
    in_touch([&] { group_->allreduce(list)->wait(); });
  }
  void next_round() { ++rounds_; }
  const std::string& name_of(int rank) const { return options_.processes[rank]; }

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

  // Waits until every process has come.
  void meet(Clock::time_point started) {
    try {
      if (store_->add(fmt::format("here.{}", rank_), 1) > 1) {
        const std::string reason = fmt::format("there are two processes with RANK {} of {}", rank_, size_);
        tell_failure(Exit::kPeer, reason);
        throw Error(Exit::kPeer, reason);
      }
      store_->set(fmt::format("agrees.{}", rank_), bytes_of(options_.agreement));
      const auto key = [](int r) { return fmt::format("agrees.{}", r); };
      while (true) {
        const std::vector<int> missing = lacking(key);
        if (missing.empty()) return;
        if (store_->check({"failure"})) throw told_failure();
        if (Clock::now() - started > options_.timeout) {
          const std::string reason =
              fmt::format("{} did not come within {} s", names(missing), seconds(options_.timeout));
          tell_failure(Exit::kPeer, reason);
          throw Error(Exit::kPeer, reason);
        }
        std::this_thread::sleep_for(kPoll);
      }
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(Exit::kPeer, fmt::format("the store of the processes is gone: {}", first_line(error)));
    }
  }

  // All were started with the same.
  void agree() {
    const auto of = [&](int rank) { return text_of(store_->get(fmt::format("agrees.{}", rank))); };
    const std::string right = of(0);
    for (int r = 1; r < size_; ++r) {
      const std::string other = of(r);
      if (other == right) continue;
      const std::string reason = fmt::format(
          "the processes were not started alike; rank 0 against rank {}:\n  {}\n  give all of them the same program, "
          "file "
          "and options",
          r, options_.difference(right, other));
      tell_failure(Exit::kPeer, reason);
      throw Error(Exit::kPeer, reason);
    }
  }

  std::vector<int> lacking(const std::function<std::string(int)>& key) {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (!store_->check({key(r)})) ranks.push_back(r);
    }
    return ranks;
  }

  std::string names(const std::vector<int>& ranks) const {
    std::string text;
    for (const int r : ranks) text += (text.empty() ? "" : " and ") + name_of(r);
    return text;
  }

  Error told_failure() {
    const nlohmann::json failure = nlohmann::json::parse(text_of(store_->get("failure")));
    return Error(static_cast<Exit>(failure.at("exit").get<int>()), failure.at("reason").get<std::string>());
  }

  template <class F>
  void in_touch(F&& together) {
    try {
      together();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw what_happened(first_line(error));
    }
  }

  // Why what the processes did together has failed: the same in all that are still there.
  Error what_happened(const std::string& said) {
    const std::string last = rounds_ == 0 ? "before the first round" : fmt::format("in round {}", rounds_ - 1);
    try {
      store_->setTimeout(kNotice);
      const auto until = Clock::now() + kNotice;
      const auto left = [](int r) { return fmt::format("left.{}", r); };
      store_->set(left(rank_), bytes_of(last));
      std::vector<int> missing;
      while (!store_->check({"failure"})) {
        missing = lacking(left);
        if (missing.empty() || Clock::now() > until) break;
        std::this_thread::sleep_for(kPoll);
      }
      std::string reason = missing.empty() ? fmt::format("the processes lost touch {}: {}", last, said)
                                           : fmt::format("{} is gone or does not answer, {}", names(missing), last);
      tell_failure(Exit::kPeer, reason);
      return told_failure();
    } catch (const std::exception&) {
      return Error(Exit::kPeer, fmt::format("{} is gone or does not answer, {}; it held the store of the processes",
                                            name_of(0), last));
    }
  }

  // Who asks the store why still finds it.
  void stay_until_noticed() {
    const auto until = Clock::now() + kNotice;
    store_->set(fmt::format("left.{}", rank_), bytes_of("first"));
    while (Clock::now() < until && !lacking([](int r) { return fmt::format("left.{}", r); }).empty()) {
      std::this_thread::sleep_for(kPoll);
    }
  }

  const JoinOptions options_;
  bool serves_ = false;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::uint64_t rounds_ = 0;  // begun
};

template <class T>
double GlooCommunicator::reduce_as(Replicas& replicas, RoundOfStep round) {
  world_.next_round();
  const BucketLayout& layout = replicas.layout();
  const std::vector<const T*> lanes = buckets<T>(replicas);
  const std::int64_t most = reference_ ? (layout.lanes + world_.size() - 1) / world_.size() : 1;
  if (!own_.defined()) {
    own_ = at::zeros({reference_ ? most : 1, layout.size}, replicas.weights(0).options());
    if (reference_) all_ = at::zeros({most * world_.size(), layout.size}, own_.options());
  }
  T* const own = own_.data_ptr<T>();
  if (!reference_) {
    add_lanes<T>(lanes, 0, layout.size, 1, own);
    world_.add_up(own_);
    return sum_.reduce<T>(std::vector<const T*>{own}, replicas, round);
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) std::copy_n(lanes[i], layout.size, own + i * layout.size);
  world_.gather_into(all_, own_);
  std::vector<const T*> all;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const int count = lanes_of(layout.lanes, rank, world_.size()).count();
    for (int i = 0; i < count; ++i) all.push_back(all_.const_data_ptr<T>() + (rank * most + i) * layout.size);
  }
  return sum_.reduce<T>(all, replicas, round);
}

void GlooCommunicator::verify(const Replicas& replicas) {
  replicas.verify();
  const std::vector<std::string> sums = world_.gather(replicas.weights_sha256());
  for (int r = 1; r < world_.size(); ++r) {
    if (sums[r] == sums[0]) continue;
    throw Error(Exit::kDevice,
                fmt::format("the copies of the weights have come apart: those of {} differ from those of "
                            "{}; a device or its memory has failed",
                            world_.name_of(r), world_.name_of(0)));
  }
}

}  // namespace

void tell_absence(const ProcessPlace& place, milliseconds timeout, Exit exit, const std::string& reason) {
  try {
    const auto store = open_store(place, timeout);
    store->compareSet("failure", {}, bytes_of(as_failure(exit, reason)));
    if (serves(place)) std::this_thread::sleep_for(kNotice);  // the others come for it here
  } catch (const std::exception&) {                           // they see that nobody comes
  }
}

std::unique_ptr<World> join_world(const ProcessPlace& place, const JoinOptions& options) {
  return std::make_unique<GlooWorld>(place, options);
}

}  // namespace lanewise
