#include "runtime/generators/event_loop.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "graph/error.h"

namespace lanewise {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) {
    throw Error(Exit::kInternal, "cannot wait for generators: " + std::system_category().message(errno));
  }
  watch(wake_.get(), [this] {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_.get(), &count, sizeof count);
  });
  thread_ = std::thread([this] { loop(); });
}

EventLoop::~EventLoop() {
  post([this] {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  });
  thread_.join();
}

void EventLoop::post(Call call) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(call));
  if (posted_.size() > 1) return;  // the loop is awake already, or will be
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::watch(int descriptor, Call readable) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = ++newest_watch_}};
  watched_[descriptor] = newest_watch_;
  calls_[newest_watch_] = std::move(readable);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw Error(Exit::kInternal, "cannot wait for a generator: " + std::system_category().message(errno));
  }
}

void EventLoop::forget(int descriptor) {
  const auto it = watched_.find(descriptor);
  if (it == watched_.end()) return;
  calls_.erase(it->second);
  watched_.erase(it);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

std::uint64_t EventLoop::at(Clock::time_point time, Call call) {
  timers_.emplace(std::pair(time, ++newest_timer_), std::move(call));
  return newest_timer_;
}

void EventLoop::cancel(std::uint64_t timer) {
  std::erase_if(timers_, [timer](const auto& entry) { return entry.first.second == timer; });
}

void EventLoop::loop() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds_left());
    for (int i = 0; i < count; ++i) {
      // An earlier call may have forgotten it, and its number be another descriptor's by now.
      if (const auto it = calls_.find(events[i].data.u64); it != calls_.end()) Call(it->second)();
    }
    run_timers();
    std::vector<Call> posted;
    {
      const std::lock_guard lock(mutex_);
      posted.swap(posted_);
    }
    for (const Call& call : posted) call();
    const std::lock_guard lock(mutex_);
    if (stop_) return;
  }
}

void EventLoop::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= Clock::now()) {
    const Call call = std::move(timers_.extract(timers_.begin()).mapped());
    call();
  }
}

int EventLoop::milliseconds_left() const {
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace lanewise
