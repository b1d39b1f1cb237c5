// What the subcommands' command lines have in common: CLI11 with errors as our Error, nearest names, examples in the
// help, and the pipeline file with its overrides.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "graph/plugins.h"
#include "graph/spec.h"
#include "tools/command.h"

namespace lanewise {

class Options {
 public:
  // `name` without "lanewise "; `examples` end the help, one a line.
  Options(const std::string& name, const std::string& help, const std::vector<std::string>& examples);

  void flag(const std::string& names, bool& value, const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& help, const std::string& placeholder);

  // FILE, --set, --swap and --plugin.
  void pipeline();
  // --format, which parse() checks, --json, and --evaluate with this help; of commands that draw plans.
  void picture(const std::string& evaluate_help);
  const std::string& format() const { return format_; }  // text, dot or json
  // What --evaluate chooses. Throws Error(kCommandLine) when the pipeline in `file` has no such plan `to_do` with.
  const Plan& chosen(const Plans& plans, const std::string& file, const std::string& to_do) const;
  // --plugin, of commands that only list types.
  void plugins();
  // The name of one type, and --set for its parameters.
  void type();
  // DIR, a run's directory; with `changes`, also --set.
  void run_directory(bool changes = true);
  // NAME, of a type that is to be made.
  void new_name();
  // The FILE, DIR, TYPE or NAME; required where there is one.
  const std::string& file() const { return file_; }

  // False: the help was asked for and printed. Throws Error(kCommandLine) on anything it does not understand.
  bool parse(const Arguments& arguments);

  // Reads the pipeline named. Shapes are worked out; nothing is opened but headers of data files.
  // `more`: settings behind those of the command line.
  Plans plan(const Registry& registry, const std::vector<Override>& more = {}) const;
  // What plan() plans with.
  PlanOptions plan_options(const std::vector<Override>& more = {}) const;
  // Throws Error(kCommandLine) unless an option's value is one of some words.
  void one_of(const std::string& option, const std::string& value, const std::vector<std::string>& words) const;
  // The types that there are with those of --plugin, of which descriptors are read.
  std::shared_ptr<const Registry> with_plugins(const Registry& registry) const;
  // The types of --plugin, which are loaded; without it, or also, those that are built in.
  Types listed_types(bool with_built_in = false) const;
  // --set, --swap and --plugin, in the order given.
  std::vector<Override> overrides() const;

 private:
  void take_sets();
  std::vector<std::string> long_names() const;  // of the options, "--" in front
  std::vector<PluginFile> plugin_files() const;

  CLI::App app_;
  std::string name_, file_;
  std::string takes_;  // what is missing when file_ is empty
  std::string format_ = "text";
  bool json_ = false, evaluate_ = false;
  std::vector<std::string> sets_, swaps_, plugins_;
  CLI::Option* set_ = nullptr;
  CLI::Option* swap_ = nullptr;
  CLI::Option* plugin_ = nullptr;
};

// What an option says, of 0.1 to 1,000,000 seconds; "": `fallback`.
double read_seconds(const std::string& option, const std::string& text, double fallback);

// Cores this process may run on.
int usable_cores();

}  // namespace lanewise
