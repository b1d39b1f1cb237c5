#include "runtime/process_store.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "graph/sha256.h"
#include "runtime/bounded.h"
#include "runtime/library_error.h"

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kNotice{1000};    // that processes have to say that they are still there
constexpr milliseconds kFarewell{5000};  // that the first waits until all that are alive have read its own failure
constexpr milliseconds kPoll{20};
constexpr milliseconds kAbsence{5000};  // that one who cannot come waits for somebody to tell
constexpr const char* kStoppedEarly = "stopped by a signal before the processes met";
constexpr const char* kNobody = "nothing listens there";
constexpr milliseconds kAsk{100};  // between questions to the store while each works by itself

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

bool serves(const ProcessPlace& place) { return place.rank == 0 && !place.agent_serves; }

// Something else that listens there may take a call and never answer, which the store waits for without end.
c10::intrusive_ptr<c10d::Store> tcp_store(const std::string& address, const c10d::TCPStoreOptions& options) {
  using Store = c10::intrusive_ptr<c10d::Store>;
  const auto started = Clock::now();
  try {
    const std::optional<Store> opened = bounded<Store>(options.timeout + kNotice, [address, options]() -> Store {
      return c10::make_intrusive<c10d::TCPStore>(address, options);
    });
    if (opened) return *opened;
  } catch (const std::exception&) {
    if (options.isServer) throw;
    if (Clock::now() - started >= options.timeout) throw std::runtime_error(kNobody);
  }
  throw std::runtime_error("something else listens there");
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Throws Error(kPeer) when the host is not known.
Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    throw Error(Exit::kPeer, fmt::format("the host \"{}\" (MASTER_ADDR) is not known here: {}", host,
                                         error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  }
  return {found, ::freeaddrinfo};
}

bool listens(const addrinfo& at) {
  constexpr int kPatience = 200;  // milliseconds
  const int fd = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  pollfd ready{fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  const bool taken = (::connect(fd, at.ai_addr, at.ai_addrlen) == 0 || errno == EINPROGRESS) &&
                     ::poll(&ready, 1, kPatience) == 1 && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
                     error == 0;
  ::close(fd);
  return taken;
}

// Until something listens where the store is to be. The store's own tries come ever more rarely, so that it would miss
// one that opens shortly before the time is up.
void wait_for_listener(const ProcessPlace& place, const JoinOptions& options) {
  const auto until = Clock::now() + options.timeout;
  const Addresses addresses = resolve(place.address, std::to_string(place.port));
  while (true) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (listens(*a)) return;
    }
    if (options.signal() != 0) throw Error(Exit::kStopped, kStoppedEarly);
    if (Clock::now() > until) throw std::runtime_error(kNobody);
    std::this_thread::sleep_for(kPoll);
  }
}

c10::intrusive_ptr<c10d::Store> open_store(const ProcessPlace& place, const JoinOptions& join) {
  own_address_towards(place.address);  // an unknown host is said at once
  try {
    if (place.rank != 0 && !place.agent_serves) wait_for_listener(place, join);
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = serves(place);
    options.numWorkers = place.size;
    options.waitWorkers = false;
    options.useLibUV = false;  // that server stops answering anyone when a connection is closed as soon as it is made
    options.timeout = join.timeout;
    return c10::make_intrusive<c10d::PrefixStore>("lanewise", tcp_store(place.address, options));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (serves(place)) {
      throw Error(Exit::kPeer,
                  fmt::format("rank 0 cannot serve the store of the processes at {}:{}: {}; is MASTER_ADDR this host, "
                              "and MASTER_PORT free?",
                              place.address, place.port, first_line(error)));
    }
    throw Error(Exit::kPeer,
                fmt::format("{} is not found at {}:{} within {} s: {}; is it running, and are MASTER_ADDR and "
                            "MASTER_PORT its own?",
                            place.agent_serves ? "torchrun's store" : "rank 0, which holds the store of the processes,",
                            place.address, place.port, seconds(join.timeout), first_line(error)));
  }
}

std::string as_failure(Exit exit, const std::string& reason) {
  return nlohmann::json({{"exit", static_cast<int>(exit)}, {"reason", reason}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string key_of(const char* key, int rank) { return fmt::format("{}.{}", key, rank); }

}  // namespace

// This host's address on the way to `host`. Nothing is sent.
std::string own_address_towards(const std::string& host) {
  const Addresses addresses = resolve(host, "9");
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
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

std::string first_line(const std::exception& error) {
  const std::string text = what_without_stack(error);
  return text.substr(0, text.find('\n'));
}

std::shared_ptr<ProcessStore::Shared> ProcessStore::open(const ProcessPlace& place, const JoinOptions& options) {
  auto shared = std::make_shared<Shared>();
  shared->names = options.processes;
  shared->holder = place.agent_serves ? "torchrun's store of the processes"
                                      : options.processes[0] + ", which holds the store of the processes,";
  shared->rank = place.rank;
  shared->door = open_store(place, options);
  return shared;
}

ProcessStore::ProcessStore(const ProcessPlace& place, const JoinOptions& options) {
  const auto started = Clock::now();
  shared_ = open(place, options);
  try {
    const auto left = options.timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - started);
    const milliseconds most = std::max(left, milliseconds(0)) + kNotice * 3 / 2;  // who refuses stays for a moment
    const auto meeting = bounded<bool>(most, [s = shared_, options, started] {
      enter(*s, options, started);
      meet(*s, options, started);
      agree(*s, options);
      return true;
    });
    if (!meeting) throw store_is_gone("before the first round");
  } catch (const Error&) {
    failed_ = true;
    throw;
  } catch (const std::exception&) {
    throw store_is_gone("before the first round");
  }
}

Error ProcessStore::store_is_gone(const std::string& when) {
  failed_ = true;
  return Error(Exit::kPeer, fmt::format("{} is gone or does not answer, {}", shared_->holder, when));
}

void ProcessStore::enter(Shared& s, const JoinOptions& options, Clock::time_point started) {
  const auto found = [&](std::int64_t group) {
    s.group = group;
    s.store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("group{}", group), s.door);
  };
  if (s.rank == 0) {
    s.welcomed.resize(s.names.size());
    return found(s.door->add("groups", 1));
  }
  const std::string word = fmt::format("{:x}.{:x}", std::random_device()(), Clock::now().time_since_epoch().count());
  s.door->set(key_of("hello", s.rank), bytes_of(word));
  const std::string answer = key_of("welcome", s.rank);
  Clock::time_point heeded = Clock::now();
  while (true) {
    if (s.door->check({answer})) {
      const std::string text = text_of(s.door->get(answer));
      const std::size_t space = text.find(' ');
      if (text.substr(0, space) == word) return found(std::stoll(text.substr(space + 1)));
    }
    // Who is stopped tells the others, if it finds them in a moment.
    if (options.signal() == 0) {
      heeded = Clock::now();
    } else if (Clock::now() - heeded > kNotice) {
      throw Error(Exit::kStopped, kStoppedEarly);
    }
    if (Clock::now() - started > options.timeout) {
      throw Error(Exit::kPeer, fmt::format("{} did not come within {} s, or has begun without this process", s.names[0],
                                           seconds(options.timeout)));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void ProcessStore::welcome(Shared& s) {
  if (s.rank != 0) return;
  for (int r = 1; r < static_cast<int>(s.names.size()); ++r) {
    if (!s.door->check({key_of("hello", r)})) continue;
    const std::string word = text_of(s.door->get(key_of("hello", r)));
    if (word == s.welcomed[r]) continue;
    s.door->set(key_of("welcome", r), bytes_of(fmt::format("{} {}", word, s.group)));
    s.welcomed[r] = word;
  }
}

void ProcessStore::refuse(Shared& s, Exit exit, const std::string& reason) {
  tell(s, exit, reason);
  const Error first = told_failure(s);
  take_leave(s, kNotice);
  throw first;
}

void ProcessStore::meet(Shared& s, const JoinOptions& options, Clock::time_point started) {
  if (s.store->add(key_of("here", s.rank), 1) > 1)
    refuse(s, Exit::kPeer, fmt::format("there are two processes with RANK {} of {}", s.rank, s.names.size()));
  s.store->set(key_of("text", s.rank), bytes_of(options.agreement));
  s.store->set(key_of("agrees", s.rank), bytes_of(sha256_hex(options.agreement)));
  while (true) {
    welcome(s);
    const std::vector<int> missing = lacking(s, "agrees");
    if (s.store->check({"failure"})) {
      const Error failure = told_failure(s);
      take_leave(s, kNotice);
      throw failure;
    }
    if (missing.empty()) return;
    if (options.signal() != 0)
      refuse(s, Exit::kStopped, fmt::format("{} was stopped before the first step", s.names[s.rank]));
    if (Clock::now() - started > options.timeout)
      refuse(s, Exit::kPeer, fmt::format("{} did not come within {} s", names(s, missing), seconds(options.timeout)));
    std::this_thread::sleep_for(kPoll);
  }
}

void ProcessStore::agree(Shared& s, const JoinOptions& options) {
  const auto of = [&](const char* key, int rank) { return text_of(s.store->get(key_of(key, rank))); };
  const std::string right = of("agrees", 0);
  for (int r = 1; r < static_cast<int>(s.names.size()); ++r) {
    if (of("agrees", r) == right) continue;
    refuse(s, Exit::kPeer,
           fmt::format("the processes were not started alike; rank 0 against rank {}:\n  {}\n  give all of "
                       "them the same program, file and options",
                       r, options.difference(of("text", 0), of("text", r))));
  }
}

std::vector<int> ProcessStore::lacking(const Shared& s, const char* key) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(s.names.size()); ++r) {
    if (!s.store->check({key_of(key, r)})) ranks.push_back(r);
  }
  return ranks;
}

std::string ProcessStore::names(const Shared& s, const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : " and ") + s.names[r];
  return text;
}

Error ProcessStore::told_failure(const Shared& s) {
  const nlohmann::json failure = nlohmann::json::parse(text_of(s.store->get("failure")));
  return Error(static_cast<Exit>(failure.at("exit").get<int>()), failure.at("reason").get<std::string>());
}

void ProcessStore::take_leave(Shared& s, milliseconds most) {
  const auto until = Clock::now() + most;
  for (const char* const key : {"left", "read"}) s.store->set(key_of(key, s.rank), bytes_of(""));
  while (s.rank == 0 && Clock::now() < until && !lacking(s, "read").empty()) {
    welcome(s);
    std::this_thread::sleep_for(kPoll);
  }
}

void ProcessStore::tell(const Shared& s, Exit exit, const std::string& reason) {
  s.store->compareSet("failure", {}, bytes_of(as_failure(exit, reason)));
}

void ProcessStore::tell_failure(Exit exit, const std::string& reason, const std::function<void()>& hang_up) {
  const bool told = std::exchange(failed_, true);
  if (!told) {
    in_time(kNotice, [exit, reason](Shared& s) {
      tell(s, exit, reason);
      return true;
    });
  }
  hang_up();
  if (!told) {
    in_time(kFarewell + kNotice, [](Shared& s) {
      take_leave(s, kFarewell);
      return true;
    });
  }
}

std::optional<bool> ProcessStore::in_time(milliseconds most, std::function<bool(Shared&)> act) {
  try {
    return bounded<bool>(most + 2 * kPoll, [s = shared_, act = std::move(act)] { return act(*s); });
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool ProcessStore::break_off(bool here) {
  std::unique_lock lock(asking_, std::defer_lock);
  if (here) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return broken_off_;
  }
  if (!broken_off_ && !mute_ && (here || Clock::now() - asked_ > kAsk)) {
    asked_ = Clock::now();
    const std::optional<bool> answer = in_time(kNotice, [here](Shared& s) {
      if (here) s.store->set("break", bytes_of(""));
      return here || s.store->check({"break"});
    });
    broken_off_ = answer.value_or(here);
    mute_ = !answer;  // what the processes do together next will tell
  }
  return here || broken_off_;
}

Error ProcessStore::find_out(const Shared& s, const std::string& when, const std::string& said,
                             std::vector<int> missing, Clock::time_point until) {
  s.store->set(key_of("left", s.rank), bytes_of(""));
  while (missing.empty() && !s.store->check({"failure"})) {
    std::vector<int> silent = lacking(s, "left");
    if (silent.empty()) break;
    if (Clock::now() > until) missing = std::move(silent);
    std::this_thread::sleep_for(kPoll);
  }
  tell(s, Exit::kPeer,
       missing.empty() ? fmt::format("the processes lost touch {}: {}", when, said)
                       : fmt::format("{} is gone or does not answer, {}", names(s, missing), when));
  return told_failure(s);
}

Error ProcessStore::what_happened(const std::string& when, const std::string& said, const std::vector<int>& missing,
                                  Clock::time_point until) {
  failed_ = true;
  until = std::max(until, Clock::now()) + kNotice;
  const auto most = std::chrono::duration_cast<milliseconds>(until - Clock::now()) + kNotice / 2;
  std::optional<Error> found;
  try {
    found = bounded<Error>(
        most, [s = shared_, when, said, missing, until] { return find_out(*s, when, said, missing, until); });
  } catch (const std::exception&) {
  }
  if (!found) return store_is_gone(when);
  in_time(kNotice, [](Shared& s) {
    take_leave(s, kNotice / 2);
    return true;
  });
  return *found;
}

void ProcessStore::leave_word(const ProcessPlace& place, const JoinOptions& options, Exit exit,
                              const std::string& reason) {
  const std::shared_ptr<Shared> shared = open(place, options);
  enter(*shared, options, Clock::now());
  tell(*shared, exit, reason);
  take_leave(*shared, kNotice);
}

void tell_absence(const ProcessPlace& place, const JoinOptions& options, Exit exit, const std::string& reason) {
  JoinOptions shortly = options;
  shortly.timeout = std::min(options.timeout, kAbsence);
  shortly.processes.resize(static_cast<std::size_t>(place.size));  // no plan, no names
  try {
    bounded<bool>(shortly.timeout + kNotice * 3, [=] {
      ProcessStore::leave_word(place, shortly, exit, reason);
      return true;
    });
  } catch (const std::exception&) {  // they see that nobody comes
  }
}

}  // namespace lanewise
