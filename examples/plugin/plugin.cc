// The plugin's one entry: the types that it brings.
#include "nodes/plugin.h"

#include "runtime/loss.h"
#include "runtime/model.h"

lanewise::NodeType difference();
lanewise::ModelType polynomial();
lanewise::LossType log_cosh();

LANEWISE_PLUGIN(table) {
  table.add(difference());
  table.add(polynomial());
  table.add(log_cosh());
}
