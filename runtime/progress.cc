#include "runtime/progress.h"

namespace lanewise {
namespace {

constexpr double kTerminalPeriod = 0.25, kPlainPeriod = 5;  // seconds
constexpr double kCentury = 100 * 365.25 * 86400;           // seconds
constexpr double kPatience = 3;  // seconds after a signal without a step, before sources that wait are given up

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string duration_text(double seconds) {
  if (seconds > kCentury) return "more than 100 years";
  const auto s = static_cast<std::int64_t>(std::max(0.0, std::ceil(seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

Progress::Progress(Options options) : options_(std::move(options)), started_(now()), told_(started_) {
  thread_ = std::thread([this] { loop(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (drawn_) draw("");
  }
  wake_.notify_all();
  thread_.join();
}

void Progress::say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (drawn_) draw("");
  options_.say(text);
}

void Progress::watch(const Plan& plan, Flow* flow) {
  const std::lock_guard lock(mutex_);
  plan_ = &plan;
  flow_ = flow;
  watched_.assign(plan.nodes.size(), Watched{.since = now()});
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  const auto period = std::chrono::duration<double>(std::min(kTerminalPeriod, options_.stall_s / 4));
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    if (options_.status_wanted()) tell_status();
    const bool stop = options_.stop_wanted();
    if (flow_ == nullptr) continue;
    tick();
    if (stop) free_if_stuck();
  }
}

void Progress::tick() {
  const FlowReport report = flow_->report();
  name_silent_sources(report);
  if (options_.quiet) return;
  if (options_.terminal) {
    draw(line(report));
  } else if (now() - told_ >= kPlainPeriod) {
    told_ = now();
    options_.say(line(report));
  }
}

// Where the run stands: the step, what each node waits for, and what lies on the edges.
void Progress::tell_status() {
  if (drawn_) draw("");
  const ProgressState state = options_.state();
  std::string text = fmt::format("status: step {}, {} samples, loss {}", state.step, state.samples,
                                 state.loss ? fmt::format("{:.6g}", *state.loss) : "none");
  if (flow_ == nullptr) return options_.say(text + "; between two flows");
  const FlowReport report = flow_->report();
  text += plan_->evaluating ? "; evaluating" : "; training";
  for (const EdgeReport& e : report.edges) {
    text += fmt::format("\n  {} -> {}: {} of {} packets, {} so far", e.from, e.to, e.left, e.capacity, e.put);
  }
  for (const std::string& waiting : flow_->waiting()) text += "\n  " + waiting;
  options_.say(text);
}

// A step that has begun is finished, however long it takes; but a source may wait for ever.
void Progress::free_if_stuck() {
  const double t = now();
  if (const std::uint64_t step = options_.state().step; moved_ == 0 || step != moved_step_) {
    moved_ = t;
    moved_step_ = step;
  }
  if (t - moved_ < kPatience) return;
  std::string waiting;
  for (const std::string& one : flow_->firing()) {
    const PlanNode* const node = plan_->find(one);
    const bool for_others = node->type->role == Role::kReduce || node->type->role == Role::kOptimizer;
    if (!node->type->may_wait || for_others) return;  // at work, or waiting for other processes that are
    waiting += (waiting.empty() ? "" : ", ") + one;
  }
  for (const std::string& one : flow_->hungry()) waiting += (waiting.empty() ? "" : ", ") + one;
  if (waiting.empty()) return;
  flow_->cancel(Exit::kStopped,
                fmt::format("stopped after step {}, while {} had nothing to give", moved_step_, waiting));
}

void Progress::name_silent_sources(const FlowReport& report) {
  const double t = now();
  for (std::size_t i = 0; i < report.nodes.size(); ++i) {
    const PlanNode& node = plan_->nodes[i];
    if (node.type->role != Role::kSource) continue;
    Watched& watched = watched_[i];
    // A source whose edges are full is held back by others, not silent.
    bool full = false;
    for (const std::vector<int>& port : node.outputs) {
      for (const int e : port)
        full = full || report.edges[e].left >= static_cast<std::uint64_t>(report.edges[e].capacity);
    }
    if (report.nodes[i].fired != watched.fired || report.nodes[i].ended || full) {
      watched = {.fired = report.nodes[i].fired, .since = t};
    } else if (!watched.named && t - watched.since >= options_.stall_s) {
      watched.named = true;
      if (drawn_) draw("");
      options_.say(fmt::format("note: {} has given nothing for {} (after {} samples); the run waits for it", node.id,
                               duration_text(t - watched.since), watched.fired));
    }
  }
}

std::string Progress::line(const FlowReport& report) const {
  const ProgressState state = options_.state();
  const double seconds = now() - started_;
  std::string text = fmt::format("step {}", state.step);
  if (state.steps_expected) text += fmt::format("/{:.0f}", *state.steps_expected);
  text += state.loss ? fmt::format("  loss {:.4g}", *state.loss) : "  loss none";
  // What a run that was resumed had done before is not counted, and may not be known yet.
  const auto samples = static_cast<double>(state.samples - std::min(state.samples, state.samples_before));
  text += fmt::format("  {:.0f} samples/s", seconds > 0 ? samples / seconds : 0);
  double left = -1;
  if (state.steps_expected && state.step > state.step_before) {
    left = (*state.steps_expected - static_cast<double>(state.step)) * seconds /
           static_cast<double>(state.step - state.step_before);
  }
  if (state.seconds_expected && (left < 0 || *state.seconds_expected - seconds < left))
    left = *state.seconds_expected - seconds;
  if (left >= 0) text += fmt::format("  {} left", duration_text(left));
  const auto slowest = std::ranges::max_element(report.nodes, {}, &NodeReport::busy_s);
  if (slowest != report.nodes.end() && slowest->busy_s > 0) {
    text += fmt::format("  slowest {} ({:.0f} % busy)", slowest->id, 100 * slowest->busy);
  }
  return text;
}

void Progress::draw(const std::string& text) {
  options_.draw("\r\033[K" + text);
  drawn_ = !text.empty();
}

}  // namespace lanewise
