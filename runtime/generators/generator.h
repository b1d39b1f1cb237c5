// A Generator gives the samples of one stream that a program of the user's makes (docs/generator-protocol.md): starts
// it, checks what it sends, and starts it again where that is wanted.
//
//   frames     lie in memory shared with the program; one thread at a time, the consumer's, takes them
//   messages   are answered by the thread of an EventLoop, so that nobody waits for a program
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "graph/node.h"
#include "runtime/generators/child.h"
#include "runtime/generators/protocol.h"
#include "runtime/generators/shared_memory.h"

namespace lanewise {

class Generators;

enum class OnFailure { kFail, kRestart, kEnd };

struct GeneratorSettings {
  std::string stream;
  ChildCommand command;
  bool evaluating = false;
  std::function<std::uint64_t(std::uint64_t run)> seed;
  std::size_t slots = 64, most_sample = 64 << 20, most_state = 16 << 20;  // most_*: bytes
  double start_s = 60;                                                    // until hello
  OnFailure on_failure = OnFailure::kFail;
  std::int64_t max_restarts = 3;
  double within_s = 600;
  // Throws a ProtocolError where the samples are not those that the pipeline was planned with.
  std::function<void(const GeneratorHello&)> check = [](const GeneratorHello&) {};
};

// Of a program that has made `sequence` frames of a run.
struct GeneratorState {
  std::uint64_t run = 0, sequence = 0;
  std::string bytes;
};

class Generator {
 public:
  Generator(Generators& generators, GeneratorSettings settings);
  ~Generator();  // the program leaves
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // The consumer's:

  // Goes to sample `sequence` of a run; what was there is void. With a state of that run, from there, else from the
  // run's beginning. Starts the program where it does not run, or cannot begin again.
  void begin(std::uint64_t run, std::uint64_t sequence = 0, std::optional<GeneratorState> state = std::nullopt);

  enum class Next { kFrame, kEnd, kNewRun, kLater };
  // kNewRun: the program was started again, and the next run follows. kLater: nothing is there yet. Throws
  // Error(kGenerator), or a ProtocolError, when the program has failed for good.
  // `place`: asked for the memory of a frame's values, as the hello says.
  Next next(GeneratorFrame& frame, const std::function<FrameMemory(const GeneratorHello&)>& place);
  // Returns soon after next() has something to say, or after a while.
  void wait(std::chrono::milliseconds most);
  // The newest state of a run from which sample `sequence` can still be made; older ones are forgotten.
  std::optional<GeneratorState> state(std::uint64_t run, std::uint64_t sequence);
  // From now on the program is asked for its state every so many samples, where it has one; 0: never.
  void save_every(std::uint64_t samples);

  // Who is told that next() may have something to say; null: nobody, once this returns.
  void connect(Feed* feed);
  // The program runs, and begin() needs no other one.
  bool can_begin_again() const;

 private:
  struct Start {
    std::uint64_t run = 0, sequence = 0;
    std::optional<GeneratorState> state;
  };
  enum class Then { kMore, kEnd, kNewRun };

  // All of these under mutex_; in the loop's thread:
  void serve();  // brings the program to where begin() wants it
  void start();
  void take(const MessageIn& message);
  void greet(std::string_view hello);
  void take_samples(std::uint32_t count);
  void take_end(std::uint64_t sequence);
  void take_state(const MessageIn& message);
  void answered();
  void ask_again();
  void ask_state();
  void gone(std::optional<ChildEnd> end);
  void want_again();
  // `why`: what the program says, behind the sentence.
  void fail(const std::string& what, const std::string& why = "");
  void restart(const std::string& text);
  void part();
  void cancel(std::optional<std::uint64_t>& timer);
  // In any:
  void give_credit();
  void want(Start start);  // what is there is void
  void begin_frames(std::uint64_t sequence, std::uint64_t drop);
  std::span<std::byte> state_area() const;
  bool is_void() const;  // what comes is of a run that nobody wants
  void tell(std::uint32_t times = 1);
  std::string program() const;
  // Has `act` called under mutex_ by the loop, where what it throws is a failure of the program.
  void post(std::function<void()> act);
  void guarded(const std::function<void()>& act);

  Generators& all_;
  const GeneratorSettings settings_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Feed* feed_ = nullptr;

  std::optional<Start> wanted_;  // not begun yet
  Start now_;
  std::uint64_t epoch_ = 0;  // raised whenever frames become void
  bool posted_ = false;      // the loop knows this generator
  std::uint64_t save_every_ = 0;

  std::unique_ptr<GeneratorChild> child_;          // changed by the loop's thread alone
  bool greeted_ = false;                           // it has got its welcome
  bool at_end_ = false;                            // it has sent `end`, and may have left
  std::optional<Message> asked_;                   // not answered
  std::optional<std::uint64_t> deadline_, again_;  // timers of the loop: for hello, and until it is started again
  GeneratorHello hello_;
  std::shared_ptr<SharedMemory> memory_;
  std::size_t slots_ = 0;

  std::uint64_t next_ = 0, announced_ = 0;  // sequence to be read; that of the next frame to be told of
  std::uint64_t ready_ = 0, drop_ = 0;      // frames to be read; of them and the next, so many for nothing
  std::size_t credit_ = 0, owed_ = 0;       // slots: that the program may write, that it is to get back
  bool after_last_ = false;
  Then then_ = Then::kMore;  // what follows once nothing is ready
  std::optional<Error> failure_;
  std::deque<EventLoop::Clock::time_point> restarts_;
  std::uint64_t saved_at_ = 0;
  std::deque<GeneratorState> states_;  // oldest first
};

}  // namespace lanewise
