// A FlowCore driven by plain threads: the flow's own classes under ThreadSanitizer, without oneTBB.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "graph/core.h"
#include "tests/graph/plan_builder.h"

namespace lanewise {

class ThreadPoolFlow final : public FlowCore {
 public:
  ThreadPoolFlow(PlanBuilder& b, int threads) : FlowCore(b.plan, b.take_nodes(), threads == 1) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    }
  }
  ~ThreadPoolFlow() override {
    for (std::jthread& t : threads_) t.request_stop();
    changed_.notify_all();
    threads_.clear();
  }

  Flow::Outcome run() {
    start_all();
    {
      std::unique_lock lock(mutex_);
      rest_.wait(lock, [this] { return waiting_ + working_ == 0; });
    }
    return settle();
  }

 private:
  void wake(const Stage&) override {
    {
      const std::lock_guard lock(mutex_);
      ++waiting_;
    }
    changed_.notify_one();
  }

  void keep_running(bool keep) override {
    const std::lock_guard lock(mutex_);
    working_ += keep ? 1 : -1;
    if (working_ + waiting_ == 0) rest_.notify_all();
  }

  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return waiting_ > 0; })) {
      --waiting_, ++working_;
      lock.unlock();
      work();
      lock.lock();
      if (--working_ + waiting_ == 0) rest_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_, rest_;
  int waiting_ = 0, working_ = 0;  // turns of work asked for, and in progress, or what keeps it running
  std::vector<std::jthread> threads_;
};

}  // namespace lanewise
