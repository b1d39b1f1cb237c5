// lanewise check-node: whether a type keeps to the rules that all of its kind keep to.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <system_error>

#include "graph/text.h"
#include "nodes/conformance.h"
#include "runtime/devices/queue.h"
#include "runtime/generators/child_process.h"
#include "runtime/loss.h"
#include "runtime/model.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// The parameters that --set gives, by the types that the fields have. Throws where the type does not take them, or
// needs others.
nlohmann::json params_of(const std::string& type, const std::vector<Override>& sets,
                         const std::function<void(Fields&)>& tell) {
  nlohmann::json params = nlohmann::json::object();
  const std::vector<FieldInfo> infos = describe(tell);
  for (const Override& change : sets) {
    if (change.kind != Override::Kind::kSet) continue;
    const std::size_t equals = change.text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(Exit::kCommandLine, fmt::format("--set {}: write it as PARAMETER=VALUE", escaped(change.text)));
    const std::string name = change.text.substr(0, equals), value = change.text.substr(equals + 1);
    const auto info = std::ranges::find(infos, name, &FieldInfo::name);
    const bool text = info != infos.end() && (info->type == "text" || info->type == "file");
    const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
    params[name] = text || json.is_discarded() ? nlohmann::json(value) : json;
  }
  std::vector<Problem> problems;
  Fields fields(
      {&params, type, [](const std::string&) { return Place{}; }, [](const std::string&) { return std::string(); }},
      problems);
  if (tell) tell(fields);
  fields.finish();
  if (problems.empty()) return params;
  throw Error(Exit::kCommandLine, problems.front().rule + "; --set PARAMETER=VALUE gives parameters");
}

struct Checked {
  std::string title;  // "window (per-sample)"
  Conformance conformance;
};

std::string text_of(const Checked& checked) {
  std::string text = checked.title + "\n";
  std::size_t held = 0;
  for (const Finding& finding : checked.conformance.findings) {
    const bool holds = finding.why_not.empty();
    held += holds;
    text += fmt::format("  {}  {}{}\n", holds ? "yes" : "NO ", finding.rule, holds ? "" : ": " + finding.why_not);
  }
  const auto& [findings, cost, untried] = checked.conformance;
  return text + fmt::format("{} of {} rules hold{}{}\n", held, findings.size(),
                            cost.empty() ? "" : "; it takes " + cost, untried.empty() ? "" : "; " + untried);
}

Json json_of(const Checked& checked) {
  Json rules = Json::array();
  for (const Finding& finding : checked.conformance.findings)
    rules.push_back({{"rule", finding.rule}, {"holds", finding.why_not.empty()}, {"why_not", finding.why_not}});
  return {{"type", checked.title},
          {"holds", checked.conformance.holds()},
          {"rules", rules},
          {"cost", checked.conformance.cost},
          {"untried", checked.conformance.untried}};
}

constexpr double kPatience = 60;  // s

// A type may end the process that it is tried in, or never come back: it is tried in another one, which goes on as this
// one would.
class Trial {
 public:
  // `patience`: for each rule, in seconds.
  Trial(const std::string& type, double patience) : type_(type), patience_(patience) {
    const pid_t parent = ::getpid();
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0 || (child_ = ::fork()) < 0) {
      throw Error(Exit::kInternal, fmt::format("no process can be made to try {} in: {}", in_quotes(type),
                                               std::system_category().message(errno)));
    }
    read_ = Descriptor(ends[0]);
    write_ = Descriptor(ends[1]);
    (child_ == 0 ? read_ : write_).reset();
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(static_cast<int>(Exit::kInternal));  // it died before it could be told
  }
  // In the other process: it was left by a way that leads back here, not by exit().
  ~Trial() { tell(kDone); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  RuleBegins begins() const {
    return [this](const std::string& rule) { tell(rule + "\n"); };
  }

  // The exit code, once the other process has ended; nullopt: this is the other. Throws Error(kInternal) where the type
  // has ended it, or does not come back.
  std::optional<int> status_of_other() const {
    if (child_ == 0) return std::nullopt;
    std::string told;
    const bool silent = !hear(told) || !ends();
    if (silent) ::kill(child_, SIGKILL);
    int status = 0;
    ::waitpid(child_, &status, 0);
    const bool done = told.ends_with(kDone);
    if (!silent && done && WIFEXITED(status)) return WEXITSTATUS(status);
    std::string rule = told.substr(0, told.find_last_of('\n'));
    rule = rule.substr(rule.find_last_of('\n') + 1);
    const ChildEnd end{.signalled = WIFSIGNALED(status),
                       .number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)};
    throw Error(Exit::kInternal,
                fmt::format("{}: the process that it is tried in {} while {}", type_,
                            silent ? fmt::format("has not come back in {:g} s", patience_) : end.text(),
                            done           ? "it ended, after all trials"
                            : rule.empty() ? "types were loaded"
                                           : "this was tried: " + rule));
  }

 private:
  static constexpr const char* kDone = "\f";

  void tell(const std::string& text) const {
    if (!write_) return;
    [[maybe_unused]] const auto written = ::write(write_.get(), text.data(), text.size());
  }

  // All that the other tells to its end. False: it tells nothing for too long.
  bool hear(std::string& told) const {
    while (true) {
      pollfd waits{.fd = read_.get(), .events = POLLIN, .revents = 0};
      const int ready = ::poll(&waits, 1, static_cast<int>(std::min(patience_ * 1000, 2e9)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return false;
      std::array<char, 4096> bytes;
      const ssize_t size = ::read(read_.get(), bytes.data(), bytes.size());
      if (size <= 0) return true;
      told.append(bytes.data(), static_cast<std::size_t>(size));
    }
  }

  // What is done after main() takes its time, too. False: it does not end.
  bool ends() const {
    const auto ended = [this] {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid != 0;
    };
    return comes_true(ended, std::chrono::milliseconds(static_cast<std::int64_t>(1000 * patience_)));
  }

  const std::string type_;
  const double patience_;
  pid_t child_ = -1;
  Descriptor read_, write_;
};

}  // namespace

int check_node_command(const Arguments& arguments) {
  Options options(
      "check-node",
      "Tries one type by itself, built in or a plugin's, and says which rules of its kind hold and what was seen where "
      "one does not: what it tells against what it does, order, ends, saved states, randomness, its inputs left alone; "
      "of models and losses rows apart, carried state and gradients against finite differences. Loads the plugins that "
      "are named. Exit 70 when a rule does not hold.",
      {"lanewise check-node window --set length=3", "lanewise check-node gru",
       "lanewise check-node spike --plugin build/libspike.so"});
  bool json = false;
  std::string timeout;
  options.type();
  options.plugins();
  options.flag("--json", json, "prints the findings as JSON");
  options.text("--timeout", timeout, "how long the trial of one rule may take (60)", "SECONDS");
  if (!options.parse(arguments)) return 0;
  Trial trial(options.file(), read_seconds("--timeout", timeout, kPatience));
  if (const std::optional<int> status = trial.status_of_other()) return *status;

  const std::string name = options.file();
  const Types types = options.listed_types(/*with_built_in=*/true);
  const auto from = [](const auto& type) {
    return type.plugin.empty() ? std::string() : ", of " + escaped(type.plugin);
  };
  const std::vector<Override> sets = options.overrides();
  std::vector<Checked> all;
  std::vector<std::string> names;
  for (const NodeType& type : types.nodes) {
    if (type.internal) continue;
    names.push_back(type.name);
    if (type.name != name) continue;
    all.push_back({fmt::format("{} ({}{})", name, to_string(type.role), from(type)),
                   check_node(type, params_of(name, sets, type.fields), trial.begins())});
  }
  for (const PartType& type : types.models) {
    names.push_back(type.name);
    if (type.name != name) continue;
    all.push_back({fmt::format("{} (model{})", name, from(type)),
                   check_model(model_type(name), params_of(name, sets, type.fields), trial.begins())});
  }
  for (const PartType& type : types.losses) {
    names.push_back(type.name);
    if (type.name != name) continue;
    if (all.empty()) params_of(name, sets, type.fields);  // else of the model of that name
    all.push_back({fmt::format("{} (loss{})", name, from(type)), check_loss(loss_type(name), trial.begins())});
  }
  if (all.empty()) {
    throw Error(Exit::kCommandLine,
                fmt::format("there is no node type, model or loss {}{}; `lanewise nodes` lists them all",
                            in_quotes(name), did_you_mean(name, names)));
  }
  std::string text;
  Json list = Json::array();
  for (const Checked& checked : all) {
    text += (text.empty() ? "" : "\n") + text_of(checked);
    list.push_back(json_of(checked));
  }
  Output().write(json ? to_text(list) + "\n" : text);
  const bool hold = std::ranges::all_of(all, [](const Checked& checked) { return checked.conformance.holds(); });
  return hold ? 0 : static_cast<int>(Exit::kInternal);
}

}  // namespace lanewise
