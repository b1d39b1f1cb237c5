#include "runtime/progress.h"

#include <cstdio>

namespace lanewise {
namespace {

constexpr double kTerminalPeriod = 0.25, kPlainPeriod = 5;  // seconds

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string duration_text(double seconds) {
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

void Progress::watch(const Plan& plan, const Flow& flow) {
  const std::lock_guard lock(mutex_);
  plan_ = &plan;
  flow_ = &flow;
  watched_.assign(plan.nodes.size(), Watched{.since = now()});
}

void Progress::unwatch() {
  const std::lock_guard lock(mutex_);
  plan_ = nullptr;
  flow_ = nullptr;
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  const auto period = std::chrono::duration<double>(std::min(kTerminalPeriod, options_.stall_s / 4));
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    if (flow_ != nullptr) tick();
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

void Progress::name_silent_sources(const FlowReport& report) {
  const double t = now();
  for (std::size_t i = 0; i < report.nodes.size(); ++i) {
    const PlanNode& node = plan_->nodes[i];
    if (node.type->role != Role::kSource) continue;
    Watched& watched = watched_[i];
    // A source whose edges are full is held back by others, not silent.
    bool full = false;
    for (const std::vector<int>& port : node.outputs) {
      for (const int e : port) full = full || report.edges[e].left >= static_cast<std::uint64_t>(report.edges[e].capacity);
    }
    if (report.nodes[i].fired != watched.fired || report.nodes[i].ended || full) {
      watched = {.fired = report.nodes[i].fired, .since = t};
    } else if (!watched.named && t - watched.since >= options_.stall_s) {
      watched.named = true;
      if (drawn_) draw("");
      options_.say(fmt::format("note: {} has given nothing for {} (after {} samples); the run waits for it", node.id,
                               duration_text(options_.stall_s), watched.fired));
    }
  }
}

std::string Progress::line(const FlowReport& report) const {
  const ProgressState state = options_.state();
  const double seconds = now() - started_;
  std::string text = fmt::format("step {}", state.step);
  if (state.steps_expected) text += fmt::format("/{:.0f}", *state.steps_expected);
  text += state.loss ? fmt::format("  loss {:.4g}", *state.loss) : "  loss none";
  text += fmt::format("  {:.0f} samples/s", static_cast<double>(state.samples) / seconds);
  double left = -1;
  if (state.steps_expected && state.step > 0) {
    left = (*state.steps_expected - static_cast<double>(state.step)) * seconds / static_cast<double>(state.step);
  }
  if (state.seconds_expected && (left < 0 || *state.seconds_expected - seconds < left)) left = *state.seconds_expected - seconds;
  if (left >= 0) text += fmt::format("  {} left", duration_text(left));
  const auto slowest = std::ranges::max_element(report.nodes, {}, &NodeReport::busy_s);
  if (slowest != report.nodes.end() && slowest->busy_s > 0) {
    text += fmt::format("  slowest {} ({:.0f} % busy)", slowest->id, 100 * slowest->busy);
  }
  return text;
}

void Progress::draw(const std::string& text) {
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  drawn_ = !text.empty();
}

}  // namespace lanewise
