// The `lanewise` command. Everything it does is in tools/command.cc and the file of each subcommand.
#include "tools/command.h"

int main(int argc, char** argv) { return lanewise::command_line({argv + 1, argv + argc}); }
