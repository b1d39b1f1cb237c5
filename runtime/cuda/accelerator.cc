// GPUs by LibTorch's CUDA part: streams, events, pinned memory, graphs. Not verified on a GPU.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "graph/error.h"
#include "runtime/cuda/library.h"
#include "runtime/devices/queue.h"
#include "runtime/library_error.h"

namespace lanewise {
namespace {

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

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(const std::function<void()>& work) {
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      const std::exception_ptr first = std::current_exception();
      try {
        graph_.capture_end();
      } catch (const c10::Error&) {  // it was broken off; the first error says why
      }
      cudaGetLastError();
      std::rethrow_exception(first);
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaQueue final : public DeviceQueue {
 public:
  explicit CudaQueue(int gpu) : gpu_(gpu), stream_(make_stream(gpu)) {}
  ~CudaQueue() override {
    const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(gpu_));
    cudaStreamDestroy(stream_.stream());  // frees it once its work is done
  }

  void run(std::function<void()> work) override {
    const c10::cuda::CUDAStreamGuard here(stream_);
    const BackwardHere backward;
    translated(gpu_, work);
  }

  void wait_for(DeviceQueue& other) override {
    auto& ahead = static_cast<CudaQueue&>(other);
    translated(gpu_, [&] {
      ahead.handed_over_.record(ahead.stream_);
      ahead.handed_over_.block(stream_);
    });
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
    return translated(gpu_, [&] { return std::make_unique<CudaRecording>(work); });
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
};

class CudaStreams final : public DeviceStreams {
 public:
  explicit CudaStreams(const std::vector<DeviceQueue*>& queues) : marks_(queues.size()) {
    for (DeviceQueue* const queue : queues) queues_.push_back(static_cast<CudaQueue*>(queue));
  }
  void use(int device) override { c10::cuda::set_device(static_cast<c10::DeviceIndex>(queues_[device]->gpu())); }
  void* stream(int device) override { return queues_[device]->stream(); }
  bool done(int device) override { return queues_[device]->reached(marks_[device]); }
  void launched() override {
    for (std::size_t i = 0; i < queues_.size(); ++i) marks_[i] = queues_[i]->mark();
  }

 private:
  std::vector<CudaQueue*> queues_;
  std::vector<std::uint64_t> marks_;
};

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator() {
    translated(0, [] { at::globalContext().lazyInitDevice(at::kCUDA); });
  }
  int count() const override { return c10::cuda::device_count(); }
  at::Device device(int gpu) const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)}; }
  std::unique_ptr<DeviceQueue> make_queue(int gpu) override { return std::make_unique<CudaQueue>(gpu); }
  at::Tensor host_memory(std::int64_t bytes) override {
    return translated(0, [&] { return at::zeros({bytes}, at::TensorOptions(at::kByte).pinned_memory(true)); });
  }
  std::unique_ptr<DeviceStreams> streams(std::vector<DeviceQueue*> queues, int) override {
    return std::make_unique<CudaStreams>(queues);
  }
  std::string nccl() const override { return "libnccl.so.2"; }  // LibTorch's CUDA part has loaded it
  void settle() override {
    for (int gpu = 0; gpu < count(); ++gpu) {
      if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(gpu))) continue;
      const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(gpu));
      check(cudaDeviceSynchronize(), gpu);
    }
  }
  std::string name(int gpu) const override {
    return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu))->name;
  }
};

}  // namespace
}  // namespace lanewise

lanewise::Accelerator* lanewise_make_accelerator() { return new lanewise::CudaAccelerator(); }
