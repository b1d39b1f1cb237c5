// Progress tells the user how a run goes: on a terminal one line that is rewritten, elsewhere a plain line every few
// seconds. It also names sources that have given nothing for a while, answers a user who asks where the run stands, and
// ends a flow that cannot finish its step after a signal, since a source waits. It only reads counters, from a thread
// of its own.
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
  std::uint64_t step_before = 0, samples_before = 0;  // of a run that this one resumes
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
    std::function<void(const std::string&)> draw = [](const std::string&) {
    };                                     // raw text for the terminal; never throws
    std::function<ProgressState()> state;  // from the progress thread
    std::function<bool()> stop_wanted;     // asked at every tick; the run is to stop
    std::function<bool()> status_wanted;   // true once for each time that the user asks where the run stands
  };
  explicit Progress(Options options);
  ~Progress();  // stops the thread and clears the line

  // A line for the user, above the progress line. From any thread.
  void say(const std::string& line);
  // Watches a flow, which must outlive the next call, or none.
  void watch(const Plan& plan, Flow* flow);

 private:
  void loop();
  void tick();
  void name_silent_sources(const FlowReport& report);
  void tell_status();
  void free_if_stuck();
  std::string line(const FlowReport& report) const;
  void draw(const std::string& text);

  const Options options_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  bool stop_ = false;
  const Plan* plan_ = nullptr;
  Flow* flow_ = nullptr;
  bool drawn_ = false;
  double started_ = 0, told_ = 0;
  double moved_ = 0;              // since the stop signal: when the last step was seen to be done; 0: no signal
  std::uint64_t moved_step_ = 0;  // that step
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
