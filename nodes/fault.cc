// fault: goes wrong on purpose at one sample, for tests of what a run does then. Every other sample passes untouched.
//
//   throw    an error is thrown                     nan      x becomes NaN
//   sleep    takes `seconds`                        hold     waits until the run ends
//   swallow  the sample is lost, uncounted          stall    it and all that follows are lost, the end too
//   end      the stream ends early
#include <ATen/ATen.h>

#include <condition_variable>
#include <limits>
#include <mutex>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class Fault final : public Node {
 public:
  struct Params {
    std::optional<std::int64_t> at;
    std::string kind = "throw";
    double seconds = 0.1;

    void fields(Fields& f) {
      f.add("at", &at, "seq of the sample to go wrong at; without it nothing goes wrong").at_least(0);
      f.add("kind", &kind, "what goes wrong").one_of({"throw", "nan", "sleep", "hold", "swallow", "stall", "end"});
      f.add("seconds", &seconds, "how long `sleep` takes").between(0, 1e6).unit("s");
    }
  };

  Fault(const Params& params, const NodeContext&) : params_(params) {}

  void fire(Firing& firing) override {
    if (stalled_) return;
    Packet& input = firing.input(0);
    if (input.is_end()) return firing.end();
    Sample sample = input.take<Sample>();
    if (params_.at && sample.tag.seq == static_cast<std::uint64_t>(*params_.at)) {
      if (params_.kind == "throw") {
        throw Error(Exit::kInternal, fmt::format("thrown on purpose at sample {}", sample.tag.seq));
      }
      if (params_.kind == "nan") sample.x = at::full_like(sample.x, std::numeric_limits<double>::quiet_NaN());
      if (params_.kind == "sleep") wait(params_.seconds);
      if (params_.kind == "hold") wait(std::nullopt);
      stalled_ = params_.kind == "stall";
      if (params_.kind == "end") {
        firing.absorb();
        return firing.end();
      }
      if (stalled_ || params_.kind == "swallow") return;
    }
    if (skip_ > 0) {
      --skip_;
      return firing.absorb();
    }
    firing.emit(0, Packet::of(std::move(sample)));
  }

  bool skip(std::uint64_t packets) override {
    skip_ = packets;
    return true;
  }

  nlohmann::json state() const override { return {{"stalled", stalled_}}; }
  void restore(const nlohmann::json& state) override { stalled_ = state.at("stalled"); }

  void interrupt() noexcept override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_all();
  }

 private:
  void wait(std::optional<double> seconds) {
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return interrupted_; };
    if (seconds) {
      changed_.wait_for(lock, std::chrono::duration<double>(*seconds), woken);
    } else {
      changed_.wait(lock, woken);
    }
  }

  const Params params_;
  bool stalled_ = false;
  std::uint64_t skip_ = 0;
  std::mutex mutex_;  // guards interrupted_
  std::condition_variable changed_;
  bool interrupted_ = false;
};

void infer(InferContext& context) { context.node.signatures = {context.inputs[0]}; }

}  // namespace

NodeType fault() {
  NodeType type = node_type<Fault>("fault", "goes wrong on purpose at one sample, for tests", Role::kPerSample,
                                   {{"sample", "sample"}}, {{"sample", "sample"}}, infer);
  type.may_wait = true;
  return type;
}

}  // namespace lanewise
