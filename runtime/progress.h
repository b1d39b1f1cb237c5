// Progress tells the user how a run goes: on a terminal one line that is rewritten, elsewhere a plain line every few seconds.
// It also names sources that have given nothing for a while. It only reads counters, from a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "graph/flow.h"
#include "graph/plan.h"

namespace lanewise {

// What there is to tell at a moment; the run keeps it up to date.
struct ProgressState {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;
  std::optional<double> loss;
  std::optional<double> steps_expected;    // of the whole run, as far as is known
  std::optional<double> seconds_expected;  // of the whole run, when it is bounded by time
};

class Progress {
 public:
  struct Options {
    bool quiet = false, terminal = false;
    double stall_s = 30;
    std::function<void(const std::string&)> say;
    std::function<ProgressState()> state;  // from the progress thread
  };
  explicit Progress(Options options);
  ~Progress();  // stops the thread and clears the line

  // A line for the user, above the progress line. From any thread.
  void say(const std::string& line);
  // Watches a flow, which must outlive unwatch().
  void watch(const Plan& plan, const Flow& flow);
  void unwatch();

 private:
  void loop();
  void tick();
  void name_silent_sources(const FlowReport& report);
  std::string line(const FlowReport& report) const;
  void draw(const std::string& text);

  const Options options_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  bool stop_ = false;
  const Plan* plan_ = nullptr;
  const Flow* flow_ = nullptr;
  bool drawn_ = false;
  double started_ = 0, told_ = 0;
  struct Watched {
    std::uint64_t fired = 0;
    double since = 0;
    bool named = false;
  };
  std::vector<Watched> watched_;  // per plan node
  std::thread thread_;
};

// "3 s", "2 min 5 s", "1 h 12 min".
std::string duration_text(double seconds);

}  // namespace lanewise
