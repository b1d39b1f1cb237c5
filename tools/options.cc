#include "tools/options.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>

#include "graph/registry.h"
#include "nodes/builtin.h"
#include "nodes/plugins.h"
#include "runtime/device.h"
#include "runtime/world.h"
#include "tools/output.h"

namespace lanewise {

Options::Options(const std::string& name, const std::string& help, const std::vector<std::string>& examples)
    : app_(help, "lanewise " + name), name_(name) {
  app_.allow_extras();  // reported by parse(), with the nearest name
  app_.set_help_flag("-h,--help", "prints this and exits");
  std::string footer = "Examples:\n";
  for (const std::string& example : examples) footer += "  " + example + "\n";
  footer.pop_back();
  app_.footer(footer);
}

void Options::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help)->disable_flag_override();
}

void Options::text(const std::string& names, std::string& value, const std::string& help,
                   const std::string& placeholder) {
  const auto given = [](const std::string& text) { return text.empty() ? std::string("it is empty") : std::string(); };
  app_.add_option(names, value, help)->type_name(placeholder)->check(given, "");
}

void Options::pipeline() {
  takes_ = "a pipeline file, such as configs/minimal.json";
  app_.add_option("FILE", file_, "the pipeline file; - reads standard input")->type_name("");
  take_sets();
  swap_ = app_.add_option("--swap", swaps_, "replaces a node's type and parameters and keeps its wiring");
  swap_->type_name("ID=JSON")->expected(1)->allow_extra_args(false)->take_all();
  plugins();
}

void Options::picture(const std::string& evaluate_help) {
  text("--format", format_, "text, dot or json (default: text)", "FORMAT");
  flag("--json", json_, "the same as --format json");
  flag("--evaluate", evaluate_, evaluate_help);
}

const Plan& Options::chosen(const Plans& plans, const std::string& file, const std::string& to_do) const {
  if (!evaluate_) return plans.train;
  if (plans.evaluate) return *plans.evaluate;
  throw Error(Exit::kCommandLine,
              fmt::format("lanewise {}: {} has no \"evaluate\", so there is no plan of it to {}", name_, file, to_do));
}

void Options::plugins() {
  plugin_ = app_.add_option("--plugin", plugins_, "a library with types of one's own, like those of \"plugins\"");
  plugin_->type_name("FILE")->expected(1)->allow_extra_args(false)->take_all();
}

void Options::run_directory(bool changes) {
  takes_ = "a run's directory, such as runs/NAME-TIME";
  app_.add_option("DIR", file_, "the run's directory")->type_name("");
  if (changes) take_sets();
}

void Options::type() {
  takes_ = "a type, such as window";
  app_.add_option("TYPE", file_, "a node type, model or loss")->type_name("");
  set_ = app_.add_option("--set", sets_, "a parameter of the type");
  set_->type_name("PARAMETER=VALUE")->expected(1)->allow_extra_args(false)->take_all();
}

void Options::new_name() {
  takes_ = "a name for the type, such as moving_mean";
  app_.add_option("NAME", file_, "of the type, its folder and its files")->type_name("");
}

void Options::take_sets() {
  set_ = app_.add_option("--set", sets_,
                         "changes a value: gen.path=x for all instances, gen3.path=x for one, run.steps=50");
  set_->type_name("ID.NAME=VALUE")->expected(1)->allow_extra_args(false)->take_all();
}

std::vector<std::string> Options::long_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool Options::parse(const Arguments& arguments) {
  const std::string see = fmt::format("; see `lanewise {} --help`", name_);
  if (arguments == Arguments{"--list-options"}) {  // for the completion of shells
    std::string lines;
    for (const std::string& name : long_names()) lines += name + "\n";
    Output().write(lines);
    return false;
  }
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    Output().write(app_.help());
    return false;
  } catch (const CLI::ParseError& e) {
    throw Error(Exit::kCommandLine, fmt::format("lanewise {}: {}{}", name_, e.what(), see));
  }
  const Arguments extras = app_.remaining();
  if (!extras.empty()) {
    // An unknown option also leaves its value behind; name the option.
    const auto option =
        std::find_if(extras.begin(), extras.end(), [](const std::string& e) { return e.starts_with("-"); });
    if (option == extras.end()) {
      throw Error(Exit::kCommandLine,
                  fmt::format("lanewise {} does not know what to do with \"{}\"{}", name_, extras.front(), see));
    }
    const std::string given = option->substr(0, option->find('='));
    throw Error(Exit::kCommandLine, fmt::format("lanewise {} has no option \"{}\"{}{}", name_, given,
                                                did_you_mean(given, long_names()), see));
  }
  if (!takes_.empty() && file_.empty()) {
    throw Error(Exit::kCommandLine, fmt::format("lanewise {} needs {}{}", name_, takes_, see));
  }
  if (json_) format_ = "json";
  one_of("--format", format_, {"text", "dot", "json"});
  return true;
}

std::vector<Override> Options::overrides() const {
  std::vector<Override> list;
  std::size_t sets = 0, swaps = 0, plugins = 0;
  for (const CLI::Option* option : app_.parse_order()) {
    if (option == set_ && set_ != nullptr) list.push_back({Override::Kind::kSet, sets_.at(sets++), ""});
    if (option == swap_ && swap_ != nullptr) list.push_back({Override::Kind::kSwap, swaps_.at(swaps++), ""});
    if (option == plugin_ && plugin_ != nullptr) list.push_back({Override::Kind::kPlugin, plugins_.at(plugins++), ""});
  }
  return list;
}

std::shared_ptr<const Registry> Options::with_plugins(const Registry& registry) const {
  std::vector<PluginFile> files = plugin_files();
  std::vector<Problem> problems;
  auto types = lanewise::with_plugins(registry, files, problems, /*load=*/false);
  if (!problems.empty()) throw PipelineError(std::move(problems));
  return types;
}

Types Options::listed_types(bool with_built_in) const {
  Registry registry = builtin_registry();
  const std::size_t nodes = registry.nodes.size(), models = registry.models.size(), losses = registry.losses.size();
  for (PluginFile& file : plugin_files()) {
    examine_plugin(file, registry.plugin_stamp);
    add_types(registry, load_plugin(file), file);
  }
  if (plugins_.empty() || with_built_in) return {registry.nodes, registry.models, registry.losses};
  const auto added = [](const auto& list, std::size_t before) {
    return std::decay_t<decltype(list)>(list.begin() + static_cast<std::ptrdiff_t>(before), list.end());
  };
  return {added(registry.nodes, nodes), added(registry.models, models), added(registry.losses, losses)};
}

std::vector<PluginFile> Options::plugin_files() const {
  std::vector<PluginFile> files;
  for (const std::string& text : plugins_) files.push_back(plugin_file(text, "", {"command line", "--plugin " + text}));
  return files;
}

PlanOptions Options::plan_options(const std::vector<Override>& more) const {
  std::vector<Override> all = overrides();
  all.insert(all.end(), more.begin(), more.end());
  return {.overrides = all, .gpus = usable_gpus(), .hosts = hosts(), .cores = usable_cores(), .infer = true};
}

Plans Options::plan(const Registry& registry, const std::vector<Override>& more) const {
  return plan_file(file_, registry, plan_options(more));
}

void Options::one_of(const std::string& option, const std::string& value, const std::vector<std::string>& words) const {
  if (std::find(words.begin(), words.end(), value) != words.end()) return;
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i)
    list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  throw Error(Exit::kCommandLine, fmt::format("lanewise {}: {} is {}, not \"{}\"{}", name_, option, list, value,
                                              did_you_mean(value, words)));
}

double read_seconds(const std::string& option, const std::string& text, double fallback) {
  constexpr double kLongest = 1e6;
  if (text.empty()) return fallback;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc{} && end == text.data() + text.size() && seconds >= 0.1 && seconds <= kLongest) return seconds;
  throw Error(Exit::kCommandLine,
              fmt::format("{} takes a number of seconds from 0.1 to 1000000, not \"{}\"", option, text));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

}  // namespace lanewise
