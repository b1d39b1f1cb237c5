// An EventLoop is one thread that waits for descriptors and times, and calls what was asked for then.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/generators/descriptor.h"

namespace lanewise {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Call = std::function<void()>;

  // Throws Error(kInternal) where the system gives no epoll.
  EventLoop();
  ~EventLoop();  // what was posted before is done; timers and descriptors are forgotten

  // Has `call` called by the loop's thread, after all that was posted before. Any thread.
  void post(Call call);

  // The rest is for the loop's own thread. Calls may do anything but throw.

  // While the descriptor can be read, or is closed by the other side.
  void watch(int descriptor, Call readable);
  void forget(int descriptor);
  // Once, not before `time`.
  std::uint64_t at(Clock::time_point time, Call call);
  void cancel(std::uint64_t timer);

 private:
  void loop();
  void run_timers();
  int milliseconds_left() const;

  Descriptor epoll_, wake_;
  std::unordered_map<int, std::uint64_t> watched_;  // descriptors, and what tells them from others of their number
  std::unordered_map<std::uint64_t, Call> calls_;
  std::uint64_t newest_watch_ = 0;
  std::map<std::pair<Clock::time_point, std::uint64_t>, Call> timers_;
  std::uint64_t newest_timer_ = 0;
  std::mutex mutex_;  // guards posted_, stop_
  std::vector<Call> posted_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lanewise
