// A thread that does what it is given, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace lanewise {

class WorkerThread {
 public:
  // What was posted before is done first.
  ~WorkerThread() {
    thread_.request_stop();
    wake_.notify_all();
  }

  // Returns at once. `work` does not throw.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
    }
    wake_.notify_all();
  }

  // Returns when `act` has, or throws what it throws.
  void run(const std::function<void()>& act) {
    std::packaged_task<void()> task(act);
    std::future<void> done = task.get_future();
    post([&task] { task(); });
    done.get();
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
      const std::function<void()> next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards waiting_
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> waiting_;
  std::jthread thread_{[this](const std::stop_token& stop) { work(stop); }};  // last: it uses the others
};

}  // namespace lanewise
