#include "graph/node.h"

#include <nlohmann/json.hpp>

#include "graph/error.h"

namespace lanewise {

Packet Node::initial(std::size_t) {
  throw Error(Exit::kInternal, "this node has no initial packet to start a cycle with");
}

nlohmann::json Node::state() const { return nlohmann::json::object(); }

void Node::restore(const nlohmann::json&) {}

void Node::connect(Feed*) { throw Error(Exit::kInternal, "a node of a type that is fed does not say how"); }

}  // namespace lanewise
