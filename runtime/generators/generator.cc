#include "runtime/generators/generator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "graph/text.h"
#include "runtime/generators/generators.h"

namespace lanewise {
namespace {

using Clock = EventLoop::Clock;
using Lock = std::lock_guard<std::mutex>;

constexpr std::size_t kMostStates = 32;
constexpr std::size_t kMostStateBytes = 64 << 20;  // after which no more states are asked for
constexpr std::size_t kLeastSlots = 4;
constexpr std::size_t kMostRing = 8 << 20;                    // bytes, where more slots than the least need it
constexpr auto kFirstPause = std::chrono::milliseconds(100);  // before a program is started again; then twice that, …
constexpr auto kLongestPause = std::chrono::milliseconds(5000);

const std::string kBroke = "broke the protocol: ";

// A text of several lines, each printable.
std::string indented(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t stop = std::min(text.find('\n', at), text.size());
    all += (all.empty() ? "" : "\n  ") + escaped(text.substr(at, stop - at));
    at = stop + 1;
  }
  return all;
}

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

}  // namespace

Generator::Generator(Generators& generators, GeneratorSettings settings)
    : all_(generators), settings_(std::move(settings)) {}

Generator::~Generator() {
  if (!posted_) return;
  std::promise<void> parted;
  post([&] {
    part();
    parted.set_value();
  });
  parted.get_future().wait();
  const Lock lock(mutex_);  // the loop has left it
}

void Generator::begin(std::uint64_t run, std::uint64_t sequence, std::optional<GeneratorState> state) {
  const Lock lock(mutex_);
  want({run, sequence, std::move(state)});
  post([this] { serve(); });
}

Generator::Next Generator::next(GeneratorFrame& frame, const std::function<FrameMemory(const GeneratorHello&)>& place) {
  std::unique_lock lock(mutex_);
  if (failure_) throw *failure_;
  if (wanted_) return Next::kLater;
  if (ready_ == 0) {
    if (then_ == Then::kEnd) return Next::kEnd;
    if (then_ == Then::kMore) return Next::kLater;
    want({.run = now_.run + 1});
    post([this] { serve(); });
    return Next::kNewRun;
  }
  const std::uint64_t epoch = epoch_;
  const FrameExpected expected{.sequence = next_, .run = now_.run, .after_last = after_last_};
  const std::shared_ptr<SharedMemory> memory = memory_;
  const std::byte* const slot = &memory->bytes()[next_ % slots_ * hello_.slot_size()];
  lock.unlock();  // the slot is the consumer's until it gives it back
  std::string wrong;
  try {
    read_frame(slot, hello_, expected, place(hello_), frame);
  } catch (const ProtocolError& error) {
    wrong = error.what();
  }
  lock.lock();
  if (epoch != epoch_) {
    tell();  // the firing for this frame is over, and there may be another one in its place
    return Next::kLater;
  }
  if (!wrong.empty()) {
    ready_ = 0;
    post([this, epoch, wrong] {
      if (epoch != epoch_) return;
      ready_ = 0;
      if (again_) return tell();  // it has failed already
      fail(kBroke + wrong);
    });
    return Next::kLater;
  }
  ++next_;
  --ready_;
  ++owed_;
  after_last_ = frame.last;
  try {
    give_credit();
  } catch (const ProtocolError& error) {
    post([this, epoch, what = kBroke + error.what()] {
      if (epoch == epoch_ && !again_) fail(what);
    });
  }
  if (drop_ == 0) return Next::kFrame;
  --drop_;
  return Next::kLater;
}

void Generator::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return failure_ || (!wanted_ && (ready_ > 0 || then_ != Then::kMore)); });
}

std::optional<GeneratorState> Generator::state(std::uint64_t run, std::uint64_t sequence) {
  const Lock lock(mutex_);
  const auto serves = [&](const GeneratorState& s) { return s.run == run && s.sequence <= sequence; };
  while (!states_.empty() && states_.front().run < run) states_.pop_front();
  while (states_.size() > 1 && serves(states_[1])) states_.pop_front();
  return !states_.empty() && serves(states_.front()) ? std::optional(states_.front()) : std::nullopt;
}

void Generator::save_every(std::uint64_t samples) {
  const Lock lock(mutex_);
  save_every_ = samples;
}

void Generator::connect(Feed* feed) {
  const Lock lock(mutex_);
  feed_ = feed;
}

bool Generator::can_begin_again() const {
  const Lock lock(mutex_);
  return child_ != nullptr && greeted_ && hello_.reset && !failure_;
}

void Generator::post(std::function<void()> act) {
  posted_ = true;
  all_.loop().post([this, act = std::move(act)] { guarded(act); });
}

void Generator::guarded(const std::function<void()>& act) {
  const Lock lock(mutex_);
  try {
    act();
  } catch (const ProtocolError& error) {
    fail(kBroke + error.what());
  } catch (const std::bad_alloc&) {
    fail("sent a state that there is no memory for");
  }
}

void Generator::serve() {
  if (!wanted_ || asked_ || again_ || failure_) return;  // or: once it has answered, or the pause is over
  if (child_ != nullptr && !greeted_) return;            // its welcome says it
  if (child_ != nullptr && (wanted_->state ? hello_.state : hello_.reset)) {
    now_ = std::move(*wanted_);
    wanted_.reset();
    return ask_again();
  }
  part();
  start();
}

void Generator::start() {
  ChildCommand command = settings_.command;
  command.variables.push_back(fmt::format("LANEWISE_SEED={}", settings_.seed(wanted_->run)));
  command.variables.push_back("LANEWISE_STREAM=" + settings_.stream);
  greeted_ = at_end_ = false;
  asked_.reset();
  GeneratorChild::Events events{
      .message =
          [this](const MessageIn& message) {
            const Lock lock(mutex_);
            take(message);
          },
      .broken =
          [this](const std::string& what) {
            const Lock lock(mutex_);
            fail(kBroke + what);
          },
      .gone = [this](std::optional<ChildEnd> end) { guarded([&] { gone(end); }); },
      .line = [&all = all_, stream = settings_.stream](std::string_view line) { all.options().log(stream, line); }};
  try {
    child_ = std::make_unique<GeneratorChild>(all_.loop(), std::move(command), std::move(events));
  } catch (const Error& error) {
    return fail(error.what());
  }
  deadline_ = all_.loop().at(Clock::now() + seconds(settings_.start_s), [this] {
    guarded([this] {
      deadline_.reset();
      fail(fmt::format("has not said hello in {:g} s", settings_.start_s));
    });
  });
}

void Generator::take(const MessageIn& message) {
  if (message.type != Message::kHello && message.type != Message::kError && !greeted_)
    throw ProtocolError("order", "another message comes before hello");
  const auto answers = [&](Message asked) {
    if (asked_ != asked) throw ProtocolError("order", "an answer to nothing");
  };
  const auto check_echo = [&](std::uint64_t asked) {
    if (const std::uint64_t told = message.u64(0); told != asked)
      throw ProtocolError("order", fmt::format("it answers for {}, and {} was asked", told, asked));
  };
  switch (message.type) {
    case Message::kHello:
      if (greeted_) throw ProtocolError("order", "a second hello");
      return greet(message.body);
    case Message::kSamples:
      return take_samples(message.u32(0));
    case Message::kEnd:
      return take_end(message.u64(0));
    case Message::kState:
      answers(Message::kSave);
      take_state(message);
      return answered();
    case Message::kResetDone:
      answers(Message::kReset);
      check_echo(now_.run);
      states_.clear();
      begin_frames(0, now_.sequence);
      return answered();
    case Message::kRestoreDone:
      answers(Message::kRestore);
      check_echo(now_.state->sequence);
      std::erase_if(
          states_, [this](const GeneratorState& s) { return s.run != now_.run || s.sequence >= now_.state->sequence; });
      states_.push_back(*now_.state);
      begin_frames(now_.state->sequence, now_.sequence - now_.state->sequence);
      return answered();
    case Message::kError:
      if (find_bad_utf8(message.body) != std::string_view::npos)
        throw ProtocolError("size", "the text of an error is not UTF-8");
      return fail("cannot go on", ":\n  " + indented(message.body));
    default:
      throw ProtocolError("type", "a generator sends no such message");
  }
}

void Generator::greet(std::string_view body) {
  GeneratorHello hello = parse_hello(body, settings_.most_sample);
  settings_.check(hello);
  if (memory_ != nullptr && hello.form() != hello_.form())
    throw ProtocolError("shape", fmt::format("its samples were {}, and are {} now", hello_.form(), hello.form()));
  // The consumer may be reading what a frame looks like, which stays.
  if (memory_ == nullptr) hello_ = std::move(hello);
  hello_.state = hello.state;
  hello_.reset = hello.reset;
  slots_ = std::min(settings_.slots, std::max(kLeastSlots, kMostRing / hello_.slot_size()));
  now_ = std::move(*wanted_);
  wanted_.reset();
  const GeneratorWelcome welcome{.seed = settings_.seed(now_.run),
                                 .run = now_.run,
                                 .stream = settings_.stream,
                                 .evaluating = settings_.evaluating,
                                 .slots = slots_,
                                 .slot_size = hello_.slot_size(),
                                 .state_size = hello_.state ? settings_.most_state : 0};
  try {
    memory_ = std::make_shared<SharedMemory>(welcome.memory_size());
  } catch (const Error& error) {
    return fail("cannot be served: " + std::string(error.what()));
  }
  MessageOut message(Message::kWelcome);
  child_->send(message.text(welcome.body()), memory_->descriptor());
  greeted_ = true;
  cancel(deadline_);
  begin_frames(0, now_.sequence);  // also for frames that it makes before it sees that it is to go on from a state
  if (now_.state && hello_.state) return ask_again();
  states_.clear();
}

void Generator::take_samples(std::uint32_t count) {
  if (at_end_) throw ProtocolError("order", "samples come after the end");
  if (count == 0 || count > credit_)
    throw ProtocolError("credit", fmt::format("{} samples for a credit of {}", count, credit_));
  credit_ -= count;
  announced_ += count;
  if (is_void()) return;
  ready_ += count;
  ask_state();
  tell(count);
}

void Generator::take_end(std::uint64_t sequence) {
  if (at_end_ || sequence != announced_) {
    throw ProtocolError("order",
                        fmt::format("the end is told after {} samples, and {} were told of", sequence, announced_));
  }
  at_end_ = true;
  if (is_void()) return;
  then_ = Then::kEnd;
  tell();
}

void Generator::take_state(const MessageIn& message) {
  const std::uint64_t sequence = message.u64(0), size = message.u64(8);
  const std::span<std::byte> area = state_area();
  if (size > area.size()) throw ProtocolError("state", fmt::format("{} bytes in an area of {}", size, area.size()));
  std::string bytes(reinterpret_cast<const char*>(area.data()), size);
  if (crc32_of(std::as_bytes(std::span(bytes))) != message.u32(16)) throw ProtocolError("crc", "of a state");
  if (sequence != announced_) {
    throw ProtocolError("order",
                        fmt::format("a state is of sequence {}, and {} frames were told of", sequence, announced_));
  }
  if (wanted_) return;
  states_.push_back({now_.run, sequence, std::move(bytes)});
}

void Generator::answered() {
  asked_.reset();
  if (wanted_) return serve();
  give_credit();
}

std::span<std::byte> Generator::state_area() const { return memory_->bytes().subspan(slots_ * hello_.slot_size()); }

void Generator::ask_again() {
  asked_ = now_.state ? Message::kRestore : Message::kReset;
  MessageOut message(*asked_);
  message.u64(settings_.seed(now_.run)).u64(now_.run).u32(settings_.evaluating ? 1 : 0).u32(0);
  if (now_.state) {
    const std::string& state = now_.state->bytes;
    const std::span<std::byte> area = state_area();
    if (state.size() > area.size()) {
      return fail(fmt::format("cannot go on: its saved state has {} bytes, and there is room for {}", state.size(),
                              area.size()));
    }
    std::memcpy(area.data(), state.data(), state.size());
    message.u64(now_.state->sequence).u64(state.size()).u32(crc32_of(std::as_bytes(std::span(state)))).u32(0);
  }
  child_->send(message);
}

void Generator::ask_state() {
  if (save_every_ == 0 || !hello_.state || asked_ || announced_ - saved_at_ < save_every_) return;
  // All are ahead of the consumer, who needs the oldest.
  std::size_t bytes = 0;
  for (const GeneratorState& state : states_) bytes += state.bytes.size();
  if (states_.size() >= kMostStates || bytes >= kMostStateBytes) return;
  asked_ = Message::kSave;
  saved_at_ = announced_;
  MessageOut message(Message::kSave);
  child_->send(message);
}

void Generator::gone(std::optional<ChildEnd> end) {
  const bool fine = !end || end->fine();
  const bool fails = !fine && (settings_.on_failure == OnFailure::kFail || is_void());
  if (!at_end_ || fails) return fail(end ? end->text() : "has closed its control socket");
  // It can do so: its frames are here.
  if (!fine)
    all_.options().say(
        fmt::format("note: {}: {} {}, after its stream's end", settings_.stream, program(), end->text()));
  want_again();
  if (end) child_.reset();
  part();
  serve();
}

void Generator::want(Start start) {
  wanted_ = std::move(start);
  ready_ = 0;
  then_ = Then::kMore;
  ++epoch_;
}

// What a program was asked for and has not begun, another one has to do.
void Generator::want_again() {
  if (!wanted_ && is_void()) wanted_ = now_;
}

void Generator::fail(const std::string& what, const std::string& why) {
  std::string text =
      fmt::format("{} {}, after it had told of {} samples of run {}{}", program(), what, announced_, now_.run, why);
  if (child_ != nullptr) {
    if (const std::string lines = child_->last_lines(); !lines.empty()) text += "; it said last:\n" + lines;
  }
  want_again();
  child_.reset();
  cancel(deadline_);
  asked_.reset();
  ++epoch_;
  if (settings_.on_failure == OnFailure::kEnd) {
    all_.options().say(fmt::format("note: {}: {}\n  its stream ends here (on_failure)", settings_.stream, text));
    then_ = Then::kEnd;
    wanted_.reset();
  } else if (settings_.on_failure == OnFailure::kRestart) {
    restart(text);
  } else {
    failure_.emplace(Exit::kGenerator, text);
  }
  tell();
}

void Generator::restart(const std::string& text) {
  const Clock::time_point now = Clock::now();
  std::erase_if(restarts_, [&](Clock::time_point then) { return now - then > seconds(settings_.within_s); });
  if (static_cast<std::int64_t>(restarts_.size()) >= settings_.max_restarts) {
    failure_.emplace(Exit::kGenerator,
                     fmt::format("{}\n  it was started again {} times in {:g} s, which is all that max_restarts allows",
                                 text, restarts_.size(), settings_.within_s));
    return;
  }
  const auto pause = kFirstPause * (1 << std::min<std::size_t>(restarts_.size(), 10));
  restarts_.push_back(now);
  std::string how = "where it began";
  if (!wanted_) {
    const auto state = std::ranges::find_if(states_.rbegin(), states_.rend(), [this](const GeneratorState& s) {
      return s.run == now_.run && s.sequence <= next_ + drop_;
    });
    if (state != states_.rend()) {
      how = "from its last state";
      want({now_.run, next_ + drop_, *state});
    } else if (next_ + ready_ == 0 || drop_ > 0) {
      want({now_.run, next_ + drop_, now_.state});
    } else {
      how = "with the next run";
      then_ = Then::kNewRun;
    }
  }
  all_.options().say(fmt::format("note: {}: {}\n  it is started again {} ({} of {})", settings_.stream, text, how,
                                 restarts_.size(), settings_.max_restarts));
  cancel(again_);
  again_ = all_.loop().at(now + std::min<Clock::duration>(pause, kLongestPause), [this] {
    guarded([this] {
      again_.reset();
      serve();
    });
  });
}

void Generator::part() {
  cancel(deadline_);
  cancel(again_);
  asked_.reset();
  if (child_ != nullptr) all_.farewell(std::move(child_));
}

void Generator::cancel(std::optional<std::uint64_t>& timer) {
  if (timer) all_.loop().cancel(*timer);
  timer.reset();
}

void Generator::give_credit() {
  if (child_ == nullptr || asked_ || wanted_ || at_end_ || 2 * owed_ < slots_ || owed_ == 0) return;
  MessageOut message(Message::kCredit);
  message.u32(static_cast<std::uint32_t>(owed_)).u32(0);
  credit_ += owed_;
  owed_ = 0;
  child_->send(message);
}

void Generator::begin_frames(std::uint64_t sequence, std::uint64_t drop) {
  next_ = announced_ = saved_at_ = sequence;
  ready_ = owed_ = 0;
  drop_ = drop;
  credit_ = slots_;
  after_last_ = at_end_ = false;
  then_ = Then::kMore;
  ++epoch_;
}

bool Generator::is_void() const { return wanted_ || asked_ == Message::kReset || asked_ == Message::kRestore; }

void Generator::tell(std::uint32_t times) {
  for (std::uint32_t i = 0; feed_ != nullptr && i < times; ++i) feed_->came();
  changed_.notify_all();
}

std::string Generator::program() const {
  const std::string command = fmt::format("{}", fmt::join(settings_.command.arguments, " "));
  if (child_ == nullptr) return fmt::format("its program ({})", escaped(command));
  return fmt::format("its program ({}, process {})", escaped(command), child_->id());
}

}  // namespace lanewise
