// GPUs by LibTorch's CUDA part: streams, events, pinned memory, graphs. Not verified on a GPU.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "graph/error.h"
#include "runtime/cuda/build.h"
#include "runtime/cuda/library.h"
#include "runtime/devices/queue.h"
#include "runtime/library_error.h"

namespace lanewise {
namespace {

constexpr std::chrono::seconds kFarewell{5}, kSetUp{60};

// A GPU has not done its work when it was bid farewell: nothing that would wait for it is asked of CUDA any more.
std::atomic<bool> hangs = false;

// What the stream's work has come to; none: it is not done within this time.
std::optional<cudaError_t> outcome_of(cudaStream_t stream, std::chrono::seconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return state;
    cudaGetLastError();  // the query leaves it behind, and others would take it for theirs
    if (std::chrono::steady_clock::now() > until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

[[noreturn]] void fail(int gpu, const std::string& why) {
  throw Error(Exit::kDevice, fmt::format("cuda:{}: {}", gpu, why));
}

void check(cudaError_t error, int gpu) {
  if (error != cudaSuccess) fail(gpu, cudaGetErrorString(error));
}

// What LibTorch throws, as our own.
template <class F>
auto translated(int gpu, const F& act) {
  try {
    return act();
  } catch (const c10::OutOfMemoryError& error) {
    fail(gpu, fmt::format("{}; {}", what_without_stack(error), kNeedsLess));
  } catch (const c10::Error& error) {
    fail(gpu, what_without_stack(error));
  }
}

// The backward stays on the thread that calls it, so that lanes go back in parallel and on their own streams.
class BackwardHere {
 public:
  BackwardHere() : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) { set(false); }
  ~BackwardHere() { set(before_); }
  BackwardHere(const BackwardHere&) = delete;
  BackwardHere& operator=(const BackwardHere&) = delete;

 private:
  static void set(bool enabled) { c10::AutogradState::get_tls_state().set_multithreading_enabled(enabled); }
  const bool before_;
};

std::atomic<bool> waiting_throws = false;  // runtime/devices/switches.h

// Where it does, what LibTorch does in a queue's work and would wait for the GPU throws instead;
// predictions and evaluations do.
class NeverWaits {
 public:
  NeverWaits() { count(1); }
  ~NeverWaits() { count(-1); }
  NeverWaits(const NeverWaits&) = delete;
  NeverWaits& operator=(const NeverWaits&) = delete;

 private:
  static void count(int change) {
    if (!waiting_throws) return;
    static std::mutex mutex;
    static int inside = 0;
    const std::lock_guard lock(mutex);
    inside += change;
    using c10::cuda::SyncDebugMode;
    c10::cuda::warning_state().set_sync_debug_mode(inside > 0 ? SyncDebugMode::L_ERROR : SyncDebugMode::L_DISABLED);
  }
};

// Captures of one process take turns: those of one device share its random generator and its allocator.
std::mutex& capturing() {
  static std::mutex mutex;
  return mutex;
}

class CudaRecording final : public Recording {
 public:
  // `pool`: where it keeps what it computes with. Recordings of one stream share it, since one is replayed at a time
  // and each begins by computing anew all that it reads there.
  CudaRecording(const std::function<void()>& work, at::cuda::MempoolId_t pool) {
    // This thread's handle may be new, and it, with its workspace for this stream, cannot be made within a capture.
    at::cuda::getCurrentCUDABlasHandle();
    const std::lock_guard turn(capturing());
    try {
      graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
      graph_->capture_end();
    } catch (...) {
      const std::exception_ptr first = std::current_exception();
      give_up(pool);
      std::rethrow_exception(first);
    }
  }
  ~CudaRecording() override {
    const std::lock_guard turn(capturing());
    graph_.reset();
  }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  void replay() override { graph_->replay(); }

 private:
  // After a failure, wherever it was: ends the capture, and what the allocators keep for it. What of this has been
  // done, or cannot be, throws; the first error says why.
  void give_up(at::cuda::MempoolId_t pool) {
    const auto attempt = [](const auto& act) {
      try {
        act();
      } catch (const c10::Error&) {
      }
    };
    attempt([&] { graph_->capture_end(); });
    attempt([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(c10::cuda::current_device(), pool); });
    attempt([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
    cudaGetLastError();
    graph_.release();  // never destroyed: it may be registered as one that is being captured
  }

  std::unique_ptr<at::cuda::CUDAGraph> graph_ = std::make_unique<at::cuda::CUDAGraph>();
};

class CudaPoint final : public QueuePoint {
 public:
  mutable at::cuda::CUDAEvent event;
};

class CudaQueue final : public DeviceQueue {
 public:
  explicit CudaQueue(int gpu) : gpu_(gpu), stream_(make_stream(gpu)) {}
  // Waits for its work, since what that uses goes next; not for ever, since a GPU that hangs never ends it. Without a
  // guard, which would throw where the work has failed, and which these calls do not need.
  ~CudaQueue() override {
    if (!hangs && !outcome_of(stream_.stream(), kFarewell)) hangs = true;
    cudaStreamDestroy(stream_.stream());  // does not wait
  }

  void run(std::function<void()> work) override {
    const c10::cuda::CUDAStreamGuard here(stream_);
    const BackwardHere backward;
    const NeverWaits never_waits;
    translated(gpu_, work);
  }

  void wait_for(DeviceQueue& other) override {
    auto& ahead = static_cast<CudaQueue&>(other);
    translated(gpu_, [&] {
      ahead.handed_over_.record(ahead.stream_);
      ahead.handed_over_.block(stream_);
    });
  }

  std::unique_ptr<QueuePoint> make_point() override { return std::make_unique<CudaPoint>(); }
  void reach(QueuePoint& point, const at::Tensor&) override {
    translated(gpu_, [&] { static_cast<CudaPoint&>(point).event.record(stream_); });
  }
  void wait_for(const QueuePoint& point) override {
    translated(gpu_, [&] { static_cast<const CudaPoint&>(point).event.block(stream_); });
  }

  std::uint64_t mark() override {
    return translated(gpu_, [&] {
      at::cuda::CUDAEvent event = spare_.empty() ? at::cuda::CUDAEvent() : std::move(spare_.back());
      if (!spare_.empty()) spare_.pop_back();
      event.record(stream_);
      ahead_.push_back(std::move(event));
      return reached_ + ahead_.size();
    });
  }

  bool reached(std::uint64_t mark) override {
    return translated(gpu_, [&] {
      while (!ahead_.empty() && reached_ < mark && ahead_.front().query()) {
        spare_.push_back(std::move(ahead_.front()));
        ahead_.pop_front();
        ++reached_;
      }
      return reached_ >= mark;
    });
  }

  std::unique_ptr<Recording> record(std::function<void()> work) override {
    const c10::cuda::CUDAStreamGuard here(stream_);
    const BackwardHere backward;
    return translated(gpu_, [&] { return std::make_unique<CudaRecording>(work, pool_); });
  }

  void add_buckets(const BucketPass& pass) override {
    if (const char* const error = lanewise_add_buckets(pass, stream_.stream())) fail(gpu_, error);
  }

  int gpu() const { return gpu_; }
  void* stream() const { return stream_.stream(); }

 private:
  // A stream of its own: those of LibTorch's pool are handed out more than once, and one that is being recorded must
  // get no other work.
  static c10::cuda::CUDAStream make_stream(int gpu) {
    const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(gpu));
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), gpu);
    return c10::cuda::getStreamFromExternal(stream, static_cast<c10::DeviceIndex>(gpu));
  }

  const int gpu_;
  const c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent handed_over_;        // where another queue goes on from
  std::deque<at::cuda::CUDAEvent> ahead_;  // the marks reached_ + 1, reached_ + 2, …
  std::vector<at::cuda::CUDAEvent> spare_;
  std::uint64_t reached_ = 0;
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();  // of its recordings
};

class CudaStreams final : public DeviceStreams {
 public:
  explicit CudaStreams(const std::vector<DeviceQueue*>& queues) : rounds_(queues) {
    for (DeviceQueue* const queue : queues) queues_.push_back(static_cast<CudaQueue*>(queue));
  }
  void use(int device) override { c10::cuda::set_device(static_cast<c10::DeviceIndex>(queues_[device]->gpu())); }
  void* stream(int device) override { return queues_[device]->stream(); }
  void launched() override { rounds_.launched(); }
  bool done(int device) override { return rounds_.done(device); }
  void finished() override { rounds_.finished(); }

 private:
  std::vector<CudaQueue*> queues_;
  RoundMarks rounds_;
};

class CudaAccelerator final : public Accelerator {
 public:
  explicit CudaAccelerator(bool waiting_is_error) {
    waiting_throws = waiting_is_error;
    // One workspace a thread and stream, in which the order of sums is fixed. What the user has set stays.
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:1", /*overwrite=*/0);
    translated(0, [] { at::globalContext().lazyInitDevice(at::kCUDA); });
  }
  int count() const override { return c10::cuda::device_count(); }
  at::Device device(int gpu) const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)}; }
  std::unique_ptr<DeviceQueue> make_queue(int gpu) override { return std::make_unique<CudaQueue>(gpu); }
  // Not of LibTorch's pool, which asks the streams that have used a piece, when it is given back, and these are gone
  // then. To free it is to wait for the GPU: where one hangs, it is left to the end of the process.
  at::Tensor host_memory(int gpu, std::int64_t bytes) override {
    const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(gpu));  // else it would be another process's
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable), gpu);
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
    return at::from_blob(
        memory, {bytes}, [](void* m) { hangs ? cudaSuccess : cudaFreeHost(m); }, at::TensorOptions(at::kByte));
  }
  std::unique_ptr<DeviceStreams> streams(std::vector<DeviceQueue*> queues, int) override {
    return std::make_unique<CudaStreams>(queues);
  }
  std::string nccl() const override { return "libnccl.so.2"; }  // LibTorch's CUDA part has loaded it
  // What is done outside of queues is in the default streams.
  void settle() override {
    for (int gpu = 0; gpu < count(); ++gpu) {
      const auto index = static_cast<c10::DeviceIndex>(gpu);
      if (!c10::cuda::hasPrimaryContext(index)) continue;
      const c10::cuda::CUDAGuard device(index);
      const auto outcome = outcome_of(c10::cuda::getDefaultCUDAStream(index).stream(), kSetUp);
      if (!outcome)
        fail(gpu, fmt::format("it has not done in {} s what it was given to set up; it hangs", kSetUp.count()));
      check(*outcome, gpu);
    }
  }
  std::string name(int gpu) const override {
    return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu))->name;
  }
  std::string address(int gpu) const override {
    char text[32] = "";
    check(cudaDeviceGetPCIBusId(text, sizeof text, gpu), gpu);
    return text;
  }
};

}  // namespace
}  // namespace lanewise

const char lanewise_cuda_build[] = LANEWISE_CUDA_BUILD;
lanewise::Accelerator* lanewise_make_accelerator(bool waiting_is_error) {
  return new lanewise::CudaAccelerator(waiting_is_error);
}
