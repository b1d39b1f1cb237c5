// The parameters of a node's instances before their types are checked: "params", what "each" gives the instance, then
// the changes in their order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/document.h"
#include "graph/read.h"

namespace lanewise {

class Parameters {
 public:
  // Adds what is wrong with "each". Requires: the node's type is known. `node` must outlive this.
  Parameters(const NodeSpec& node, const Document& document, std::vector<Problem>& problems);

  bool sound() const { return sound_; }
  Written of(std::int64_t instance, bool evaluating) const;

 private:
  const NodeSpec& node_;
  std::vector<std::string> each_;  // the keys of "each" that are in order
  bool sound_ = true;
};

}  // namespace lanewise
