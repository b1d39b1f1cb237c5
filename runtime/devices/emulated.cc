#include "runtime/devices/emulated.h"

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "graph/error.h"
#include "runtime/devices/operation_tape.h"
#include "runtime/devices/worker_thread.h"
#include "runtime/environment.h"
#include "runtime/random.h"
#include "runtime/setup.h"
#include "runtime/shared_library.h"

namespace lanewise {
namespace {

constexpr auto kPoll = std::chrono::microseconds(20);

int number(const char* name, int most) { return variable(name).empty() ? 0 : number_variable(name, 0, most); }

// Which queue hangs, and in which piece of its work; both from 1, or 0.
struct Hang {
  int queue = 0, work = 0;
};
Hang hang() {
  constexpr const char* kName = "LANEWISE_EMULATED_HANG";
  constexpr int kMost = 1'000'000'000;
  const std::string text = variable(kName);
  if (text.empty()) return {};
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::optional<int> queue = whole_number(text.substr(0, colon), 1, kMost);
  const std::optional<int> work = whole_number(text.substr(std::min(colon + 1, text.size())), 1, kMost);
  if (!queue || !work) refuse_variable(kName, fmt::format("QUEUE:WORK, two numbers from 1 to {}", kMost));
  return {*queue, *work};
}

class EmulatedRecording final : public Recording {
 public:
  explicit EmulatedRecording(const std::function<void()>& work) : tape_(work) {}
  void replay() override { tape_.replay(); }

 private:
  const OperationTape tape_;
};

// How often it has been issued, and come to.
struct EmulatedPoint final : QueuePoint {
  struct Way {
    std::atomic<std::uint64_t> issued = 0, done = 0;
  };
  const std::shared_ptr<Way> way = std::make_shared<Way>();  // work that waits for it may outlive it
};

class EmulatedQueue final : public DeviceQueue {
 public:
  // `hangs_in`: that piece of work, from 1, never ends; 0: none.
  EmulatedQueue(int most_delay_us, std::uint64_t seed, std::uint64_t hangs_in)
      : most_delay_us_(most_delay_us), hangs_in_(hangs_in), random_(seed, "emulated", "queue") {
    thread_.post(use_one_thread);
  }
  ~EmulatedQueue() override { way_->over = true; }

  void run(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    ++issued_;
    thread_.post([this, work = std::move(work)] { begin(work); });
  }

  void wait_for(DeviceQueue& other) override {
    const std::shared_ptr<Way> way = static_cast<EmulatedQueue&>(other).way_;
    run([way, until = other.mark(), own = way_] {
      while (way->done < until && !way->over && !own->over) std::this_thread::sleep_for(kPoll);
    });
  }

  std::unique_ptr<QueuePoint> make_point() override { return std::make_unique<EmulatedPoint>(); }
  // A GPU would come to what was issued later: what is ready is taken away until then.
  void reach(QueuePoint& point, const at::Tensor& ready) override {
    come_to_point();
    coming_ = {static_cast<EmulatedPoint&>(point).way, ready, ready.clone()};
    at::Tensor(ready).fill_(std::numeric_limits<double>::quiet_NaN());
    ++coming_.way->issued;
  }
  void wait_for(const QueuePoint& point) override {
    const std::shared_ptr<EmulatedPoint::Way> there = static_cast<const EmulatedPoint&>(point).way;
    const std::uint64_t until = there->issued;
    if (until == 0) throw Error(Exit::kInternal, "a point is waited for before any work has reached it");
    run([there, until, own = way_] {
      while (there->done < until && !own->over) std::this_thread::sleep_for(kPoll);
    });
  }

  std::uint64_t mark() override {
    const std::lock_guard lock(mutex_);
    return issued_;
  }

  bool reached(std::uint64_t mark) override {
    if (way_->over) {
      const std::lock_guard lock(mutex_);
      std::rethrow_exception(failure_);
    }
    return way_->done >= mark;
  }

  // By the thread that replays it, as what the work reads is being written by another until then.
  std::unique_ptr<Recording> record(std::function<void()> work) override {
    constexpr std::chrono::seconds kPatience{60};
    struct Made {
      std::unique_ptr<Recording> recording;
      std::exception_ptr failure;
    };
    const auto made = std::make_shared<Made>();
    run([made, work = std::move(work)] {
      try {
        made->recording = std::make_unique<EmulatedRecording>(work);
      } catch (...) {
        made->failure = std::current_exception();
      }
    });
    wait_for_all(*this, {"an emulated GPU that is to record", kPatience});
    if (made->failure) std::rethrow_exception(made->failure);
    return std::move(made->recording);
  }

  void add_buckets(const BucketPass& pass) override { run_bucket_pass(pass); }

 private:
  // How far a queue has come, which others may ask when it is gone.
  struct Way {
    std::atomic<std::uint64_t> done = 0;
    std::atomic<bool> over = false;  // it does nothing any more: it has failed, or is being destroyed
  };

  void delay() {
    if (most_delay_us_ == 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.bits() % static_cast<std::uint64_t>(most_delay_us_)));
  }

  void come_to_point() {
    if (coming_.way == nullptr) return;
    delay();
    coming_.ready.copy_(coming_.values);
    ++coming_.way->done;
    coming_ = {};
  }

  void begin(const std::function<void()>& work) {
    delay();
    while (way_->done + 1 == hangs_in_ && !way_->over) std::this_thread::sleep_for(kPoll);
    try {
      if (!way_->over) work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      way_->over = true;
    }
    come_to_point();
    ++way_->done;
  }

  const int most_delay_us_;
  const std::uint64_t hangs_in_;
  Random random_;
  std::mutex mutex_;  // guards issued_, failure_
  std::uint64_t issued_ = 0;
  std::exception_ptr failure_;
  struct {
    std::shared_ptr<EmulatedPoint::Way> way;  // null: there is none
    at::Tensor ready, values;
  } coming_;  // the point that was issued last; the worker's
  const std::shared_ptr<Way> way_ = std::make_shared<Way>();
  WorkerThread thread_;  // last: its work uses the others
};

// The fake NCCL, with what it lets a test do with streams.
struct FakeNccl {
  explicit FakeNccl(const std::string& path) : library(open_library(path, RTLD_NOW | RTLD_LOCAL)) {
    find(use, "fake_nccl_set_device", path);
    find(open, "fake_nccl_open_stream", path);
    find(launched, "fake_nccl_stream_launched", path);
    find(completed, "fake_nccl_stream_completed", path);
  }
  ~FakeNccl() { ::dlclose(library); }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  template <class F>
  void find(F& function, const char* name, const std::string& path) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    if (function == nullptr)
      throw Error(Exit::kDevice, fmt::format("{} is not the NCCL of the tests, which emulated GPUs need", path));
  }

  void* const library;
  void (*use)(int) = nullptr;
  void (*open)(const void*, std::int64_t) = nullptr;
  std::int64_t (*launched)(const void*) = nullptr;
  std::int64_t (*completed)(const void*) = nullptr;
};

// The fake NCCL moves data on a thread of its own. What is launched there begins when the queue comes to it, and what
// comes after it in the queue waits for it.
class EmulatedStreams final : public DeviceStreams {
 public:
  EmulatedStreams(const std::string& library, std::vector<DeviceQueue*> queues, int first_rank)
      : state_(std::make_shared<State>(library, queues.size())),
        queues_(std::move(queues)),
        rounds_(queues_),
        first_rank_(first_rank) {
    for (const char& place : state_->places) state_->nccl.open(&place, 0);
  }

  void use(int device) override { state_->nccl.use(first_rank_ + device); }
  void* stream(int device) override { return &state_->places[device]; }
  void launched() override {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      const char* const place = &state_->places[i];
      queues_[i]->run([state = state_, place, until = state_->nccl.launched(place)] {
        state->nccl.open(place, until);
        while (state->nccl.completed(place) < until) std::this_thread::sleep_for(kPoll);
      });
    }
    rounds_.launched();
  }
  bool done(int device) override { return rounds_.done(device); }
  void finished() override { rounds_.finished(); }

 private:
  struct State {
    State(const std::string& library, std::size_t count) : nccl(library), places(count) {}
    const FakeNccl nccl;
    std::vector<char> places;  // their addresses are the streams
  };
  const std::shared_ptr<State> state_;  // the queues' work uses it
  const std::vector<DeviceQueue*> queues_;
  RoundMarks rounds_;
  const int first_rank_;
};

class EmulatedAccelerator final : public Accelerator {
 public:
  int count() const override { return emulated_gpus(); }
  at::Device device(int) const override { return at::kCPU; }
  std::unique_ptr<DeviceQueue> make_queue(int) override {
    ++queues_;
    return std::make_unique<EmulatedQueue>(
        number("LANEWISE_EMULATED_DELAY_US", 1'000'000), queues_,
        queues_ == static_cast<std::uint64_t>(hang_.queue) ? static_cast<std::uint64_t>(hang_.work) : 0);
  }
  at::Tensor host_memory(int, std::int64_t bytes) override { return at::zeros({bytes}, at::kByte); }
  std::unique_ptr<DeviceStreams> streams(std::vector<DeviceQueue*> queues, int first_rank) override {
    return std::make_unique<EmulatedStreams>(nccl(), std::move(queues), first_rank);
  }
  std::string nccl() const override {
    const std::string path = variable("LANEWISE_EMULATED_NCCL");
    if (path.empty())
      throw Error(Exit::kDevice,
                  "lanes on several emulated GPUs need LANEWISE_EMULATED_NCCL, the path of libfake_nccl.so");
    return path;
  }
  void settle() override {}
  std::string name(int) const override { return "emulated"; }
  std::string address(int gpu) const override { return fmt::format("emulated {}", gpu); }
  std::int64_t part_bytes() const override {
    const int bytes = number("LANEWISE_EMULATED_PART_BYTES", 1 << 30);
    return bytes > 0 ? bytes : kPartBytes;
  }

 private:
  const Hang hang_ = hang();
  std::uint64_t queues_ = 0;
};

}  // namespace

int emulated_gpus() { return number("LANEWISE_EMULATED_GPUS", 64); }

std::unique_ptr<Accelerator> make_emulated_accelerator() { return std::make_unique<EmulatedAccelerator>(); }

}  // namespace lanewise
