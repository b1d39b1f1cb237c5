#include "runtime/devices/queue.h"

#include <chrono>
#include <thread>

namespace lanewise {

void wait_until(DeviceQueue& queue, std::uint64_t mark) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSpin = std::chrono::microseconds(200), kPoll = std::chrono::microseconds(20);
  const Clock::time_point begun = Clock::now();
  while (!queue.reached(mark)) {
    if (Clock::now() - begun > kSpin) {
      std::this_thread::sleep_for(kPoll);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace lanewise
