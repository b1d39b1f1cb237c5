#include "runtime/generators/generators.h"

namespace lanewise {

Generators::Generators(Options options) : options_(std::move(options)) {}

Generators::~Generators() {
  kept_.clear();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return leaving_.empty(); });
}

EventLoop& Generators::loop() {
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) loop_ = std::make_unique<EventLoop>();
  return *loop_;
}

std::unique_ptr<Generator> Generators::take(const std::string& stream, bool evaluating) {
  auto kept = kept_.extract({stream, evaluating});
  return kept ? std::move(kept.mapped()) : nullptr;
}

void Generators::keep(const std::string& stream, bool evaluating, std::unique_ptr<Generator> generator) {
  kept_[{stream, evaluating}] = std::move(generator);
}

void Generators::farewell(std::unique_ptr<GeneratorChild> child) {
  GeneratorChild* const leaver = child.get();
  {
    const std::lock_guard lock(mutex_);
    leaving_[leaver] = std::move(child);
  }
  leaver->leave([this, leaver] {
    std::unique_ptr<GeneratorChild> gone;
    const std::lock_guard lock(mutex_);
    gone = std::move(leaving_.extract(leaver).mapped());
    gone.reset();
    changed_.notify_all();
  });
}

}  // namespace lanewise
