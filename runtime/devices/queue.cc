#include "runtime/devices/queue.h"

#include <fmt/format.h>

#include <thread>

#include "graph/error.h"

namespace lanewise {

bool comes_true(const std::function<bool()>& so, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSpin = std::chrono::microseconds(200), kPoll = std::chrono::microseconds(20);
  const Clock::time_point begun = Clock::now();
  while (!so()) {
    const auto waited = Clock::now() - begun;
    if (waited > timeout) return false;
    if (waited > kSpin) {
      std::this_thread::sleep_for(kPoll);
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

void wait_until(DeviceQueue& queue, std::uint64_t mark, const Patience& patience) {
  if (!comes_true([&] { return queue.reached(mark); }, patience.timeout)) fail_late(patience);
}

void fail_late(const Patience& patience) {
  throw Error(Exit::kDevice,
              fmt::format("{} has not done its work in {} s: the GPU hangs, or is slower than --peer-timeout allows",
                          patience.who, static_cast<double>(patience.timeout.count()) / 1000));
}

}  // namespace lanewise
