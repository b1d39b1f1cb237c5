#include "tools/command.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "graph/error.h"
#include "graph/registry.h"
#include "runtime/report.h"
#include "tools/output.h"
#include "tools/signals.h"

namespace lanewise {
namespace {

std::string help() {
  std::string text =
      "lanewise trains one model on many time-correlated streams, as a JSON file describes it.\n"
      "\n"
      "Usage: lanewise COMMAND [OPTIONS]\n"
      "\n"
      "Commands:\n";
  for (const Command& command : commands()) text += fmt::format("  {:<16}{}\n", command.name, command.help);
  text +=
      "\n"
      "Examples:\n"
      "  lanewise check configs/flights16.json      is the file right, and what would run?\n"
      "  lanewise graph configs/flights16.json      a picture of it\n"
      "  lanewise run configs/flights16.json        train, and leave the results in runs/\n"
      "  lanewise resume runs/first                 go on with a run that was stopped\n"
      "  lanewise nodes window                      what a node type takes and gives\n"
      "\n"
      "`lanewise COMMAND --help` tells all about a command.\n"
      "\n"
      "Exit codes:\n"
      "  0 done · 2 command line · 3 pipeline file · 4 data · 5 generator · 6 checkpoint · 7 no progress ·\n"
      "  8 peer or collective · 9 device · 10 non-finite · 11 stopped on request · 70 internal error\n";
  return text;
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) {
    write_error(help());
    return static_cast<int>(Exit::kCommandLine);
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    Output().write(help());
    return 0;
  }
  if (name == "--version") {
    Output().write("lanewise " + version() + "\n");
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command.run({arguments.begin() + 1, arguments.end()});
    names.push_back(command.name);
  }
  throw Error(Exit::kCommandLine, fmt::format("lanewise has no command \"{}\"{}; `lanewise --help` lists them", name,
                                              did_you_mean(name, names)));
}

// An error as --json tells it.
nlohmann::ordered_json as_json(Exit exit, const std::string& message, const PipelineError* pipeline) {
  nlohmann::ordered_json json = {{"exit", static_cast<int>(exit)}, {"reason", message}};
  if (pipeline) {
    for (const Problem& p : pipeline->problems()) {
      json["problems"].push_back({{"at", p.place.at}, {"pointer", p.place.pointer}, {"rule", p.rule}});
    }
  }
  return json;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"run", "trains a pipeline and leaves a run directory", run_command},
      {"bench", "says where the time of a pipeline goes, and what bounds it", bench_command},
      {"resume", "goes on with a run that was stopped or killed", resume_command},
      {"eval", "evaluates the model of a run", eval_command},
      {"predict", "predicts streams with the model of a run", predict_command},
      {"explain-config", "says where a value of a pipeline came from", explain_config_command},
      {"diff", "says what is different between two pipelines", diff_command},
      {"completion", "prints what a shell needs to complete words", completion_command},
      {"export", "writes the model of a run as one file", export_command},
      {"check", "checks a pipeline and says what it checked; starts nothing", check_command},
      {"graph", "draws a pipeline as text, DOT or JSON", graph_command},
      {"nodes", "lists the node types, models and losses, or tells all about one", nodes_command},
      {"schema", "prints the JSON schema of pipeline files", schema_command},
      {"new-node", "writes a plugin of one's own to begin with, and its test", new_node_command},
      {"check-node", "says whether a type keeps to the rules of its kind", check_node_command},
  };
  return table;
}

int command_line(const Arguments& arguments) {
  prepare_descriptors();
  keep_output_apart();
  ignore_write_signals();
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  const auto failed = [json](Exit exit, const std::string& message, const PipelineError* pipeline) {
    // A PipelineError is a list that reads by itself; anything else is one sentence.
    write_error(pipeline ? message + "\n" : "error: " + message + "\n");
    if (json) Output().try_write(to_text(as_json(exit, message, pipeline)) + "\n");
    return static_cast<int>(exit);
  };
  try {
    return dispatch(arguments);
  } catch (const PipelineError& e) {
    return failed(e.exit(), e.what(), &e);
  } catch (const Error& e) {
    return failed(e.exit(), e.what(), nullptr);
  } catch (const std::bad_alloc&) {
    return failed(Exit::kInternal, "there is not enough memory; use a smaller model or fewer lanes", nullptr);
  } catch (const std::exception& e) {
    return failed(Exit::kInternal, std::string(e.what()) + "; this is a fault of lanewise, please report it", nullptr);
  } catch (...) {
    return failed(Exit::kInternal, "something was thrown that is no exception; a plugin may be at fault", nullptr);
  }
}

}  // namespace lanewise
