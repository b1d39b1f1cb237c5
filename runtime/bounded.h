// Calls that may never return, given up after a while.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <thread>

namespace lanewise {

// What `act` returns or throws; nullopt when it takes longer than `most`, and then its thread is left behind, or when
// there is no thread to be had. It must own what it touches.
template <class T>
std::optional<T> bounded(std::chrono::milliseconds most, std::function<T()> act) {
  std::promise<T> promise;
  std::future<T> done = promise.get_future();
  try {
    std::thread([act = std::move(act), promise = std::move(promise)]() mutable {
      try {
        promise.set_value(act());
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }).detach();
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  if (done.wait_for(most) != std::future_status::ready) return std::nullopt;
  return done.get();
}

}  // namespace lanewise
