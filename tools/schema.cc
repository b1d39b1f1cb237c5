// lanewise schema: the JSON schema of pipeline files, which configs/schema.json is a copy of.
#include "graph/schema.h"

#include "nodes/builtin.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {

int schema_command(const Arguments& arguments) {
  Options options("schema",
                  "Prints the JSON schema of pipeline files, for editors that complete and check while one types.",
                  {"lanewise schema > configs/schema.json", "lanewise schema --plugin libmynode.so > schema.json"});
  bool json = false;
  options.flag("--json", json, "the same: a schema is JSON");
  options.plugins();
  if (!options.parse(arguments)) return 0;
  Output().write(to_text(schema(*options.with_plugins(builtin_registry()))) + "\n");
  return 0;
}

}  // namespace lanewise
