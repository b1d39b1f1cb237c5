#include "runtime/devices/queue.h"

#include <chrono>
#include <thread>

namespace lanewise {

void wait_until(DeviceQueue& queue, std::uint64_t mark) {
  constexpr auto kPoll = std::chrono::microseconds(20);
  while (!queue.reached(mark)) std::this_thread::sleep_for(kPoll);
}

}  // namespace lanewise
