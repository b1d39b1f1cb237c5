#include "runtime/devices/emulated.h"

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "graph/error.h"
#include "runtime/devices/worker_thread.h"
#include "runtime/environment.h"
#include "runtime/random.h"
#include "runtime/setup.h"

namespace lanewise {
namespace {

constexpr auto kPoll = std::chrono::microseconds(20);

int number(const char* name, int most) { return variable(name).empty() ? 0 : number_variable(name, 0, most); }

class EmulatedRecording final : public Recording {
 public:
  explicit EmulatedRecording(std::function<void()> work) : work_(std::move(work)) {}
  void replay() override { work_(); }

 private:
  const std::function<void()> work_;
};

class EmulatedQueue final : public DeviceQueue {
 public:
  EmulatedQueue(int most_delay_us, std::uint64_t seed)
      : most_delay_us_(most_delay_us), random_(seed, "emulated", "queue") {
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

  std::unique_ptr<Recording> record(std::function<void()> work) override {
    return std::make_unique<EmulatedRecording>(std::move(work));
  }

  void add_buckets(const BucketPass& pass) override { run_bucket_pass(pass); }

 private:
  // How far a queue has come, which others may ask when it is gone.
  struct Way {
    std::atomic<std::uint64_t> done = 0;
    std::atomic<bool> over = false;  // it does nothing any more: it has failed, or is being destroyed
  };

  void begin(const std::function<void()>& work) {
    if (most_delay_us_ > 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(random_.bits() % static_cast<std::uint64_t>(most_delay_us_)));
    }
    try {
      if (!way_->over) work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      way_->over = true;
    }
    ++way_->done;
  }

  const int most_delay_us_;
  Random random_;
  std::mutex mutex_;  // guards issued_, failure_
  std::uint64_t issued_ = 0;
  std::exception_ptr failure_;
  const std::shared_ptr<Way> way_ = std::make_shared<Way>();
  WorkerThread thread_;  // last: its work uses the others
};

// The fake NCCL moves data on a thread of its own: a queue's work before a reduction is done when it is launched, and
// what comes after waits for it.
class EmulatedStreams final : public DeviceStreams {
 public:
  EmulatedStreams(const std::string& library, std::vector<DeviceQueue*> queues, int first_rank)
      : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)),
        queues_(std::move(queues)),
        rounds_(queues_),
        first_rank_(first_rank) {
    if (library_ == nullptr) throw Error(Exit::kDevice, fmt::format("{} does not open: {}", library, ::dlerror()));
    use_ = reinterpret_cast<void (*)(int)>(::dlsym(library_, "fake_nccl_set_device"));
    done_ = reinterpret_cast<bool (*)(const void*)>(::dlsym(library_, "fake_nccl_stream_done"));
    if (use_ == nullptr || done_ == nullptr)
      throw Error(Exit::kDevice, fmt::format("{} is not the NCCL of the tests, which emulated GPUs need", library));
    places_.resize(queues_.size());
  }
  ~EmulatedStreams() override { ::dlclose(library_); }
  EmulatedStreams(const EmulatedStreams&) = delete;
  EmulatedStreams& operator=(const EmulatedStreams&) = delete;

  void use(int device) override { use_(first_rank_ + device); }
  void* stream(int device) override {
    wait_for_all(*queues_[device]);
    return &places_[device];
  }
  void launched() override {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      queues_[i]->run([this, i] {
        while (!done_(&places_[i])) std::this_thread::sleep_for(kPoll);
      });
    }
    rounds_.launched();
  }
  bool done(int device) override { return rounds_.done(device); }
  void finished() override { rounds_.finished(); }

 private:
  void* const library_;
  const std::vector<DeviceQueue*> queues_;
  RoundMarks rounds_;
  const int first_rank_;
  std::vector<char> places_;  // their addresses are the streams
  void (*use_)(int) = nullptr;
  bool (*done_)(const void*) = nullptr;
};

class EmulatedAccelerator final : public Accelerator {
 public:
  int count() const override { return emulated_gpus(); }
  at::Device device(int) const override { return at::kCPU; }
  std::unique_ptr<DeviceQueue> make_queue(int) override {
    return std::make_unique<EmulatedQueue>(number("LANEWISE_EMULATED_DELAY_US", 1'000'000), ++queues_);
  }
  at::Tensor host_memory(std::int64_t bytes) override { return at::zeros({bytes}, at::kByte); }
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

 private:
  std::uint64_t queues_ = 0;
};

}  // namespace

int emulated_gpus() { return number("LANEWISE_EMULATED_GPUS", 64); }

std::unique_ptr<Accelerator> make_emulated_accelerator() { return std::make_unique<EmulatedAccelerator>(); }

}  // namespace lanewise
