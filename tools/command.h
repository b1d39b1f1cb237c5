// The subcommands of `lanewise`, one file each, and the table that they are looked up in.
//
// A subcommand reads its arguments with Options (tools/options.h), writes to an Output (tools/output.h), and returns
// the exit code of the command or throws an Error, which command_line() prints.
#pragma once

#include <string>
#include <vector>

namespace lanewise {

using Arguments = std::vector<std::string>;

struct Command {
  std::string name;
  std::string help;  // one line
  int (*run)(const Arguments& arguments);
};

const std::vector<Command>& commands();

int run_command(const Arguments& arguments);             // tools/run.cc
int check_command(const Arguments& arguments);           // tools/check.cc
int graph_command(const Arguments& arguments);           // tools/graph.cc
int nodes_command(const Arguments& arguments);           // tools/nodes.cc
int schema_command(const Arguments& arguments);          // tools/schema.cc
int bench_command(const Arguments& arguments);           // tools/bench.cc
int resume_command(const Arguments& arguments);          // tools/resume.cc
int eval_command(const Arguments& arguments);            // tools/eval.cc
int predict_command(const Arguments& arguments);         // tools/predict.cc
int export_command(const Arguments& arguments);          // tools/export.cc
int explain_config_command(const Arguments& arguments);  // tools/explain.cc
int diff_command(const Arguments& arguments);            // tools/diff.cc
int completion_command(const Arguments& arguments);      // tools/completion.cc
int check_node_command(const Arguments& arguments);      // tools/check_node.cc
int new_node_command(const Arguments& arguments);        // tools/new_node.cc

// The whole command after its own name: runs the subcommand, prints what went wrong, returns the exit code.
int command_line(const Arguments& arguments);

}  // namespace lanewise
