// A plugin that tells on whoever loads it: it makes the file that TRAP_FILE names. Its one node passes samples on; TRAP
// says what goes wrong while it tells its types.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "nodes/plugin.h"

namespace {

using namespace lanewise;

const bool kLoaded = [] {
  if (const char* const file = std::getenv("TRAP_FILE")) std::fclose(std::fopen(file, "w"));
  return true;
}();

class Pass final : public PerSample {
 public:
  struct Params {
    std::int64_t often = 1;
    void fields(Fields& f) { f.add("often", often, "of no account").between(1, 9).unit("times"); }
  };
  Pass(const Params&, const NodeContext& context) : PerSample(context) {}

 private:
  std::optional<Sample> apply(Sample sample) override { return sample; }
};

NodeType pass(const std::string& name, Role role = Role::kPerSample) {
  return node_type<Pass>(name, "passes samples on", role, {{"sample", "sample"}}, {{"sample", "sample"}});
}

}  // namespace

LANEWISE_PLUGIN(table) {
  const char* const wanted = std::getenv("TRAP");
  const std::string trap = wanted == nullptr ? "" : wanted;
  if (trap == "throw") throw std::runtime_error("no licence");
  if (trap == "throw 7") throw 7;
  if (trap == "built in") table.add(pass("window"));
  if (trap == "twice") table.add(pass("pass"));
  if (trap == "no name") table.add(pass("two words"));
  if (trap == "reduce") table.add(pass("pass", Role::kReduce));
  if (trap == "more") table.add(pass("another"));
  table.add(pass("pass"));
}
