// node_type<N> makes the descriptor of a node type from the class of its nodes: N::Params tells the parameters, and
// N(const N::Params&, const NodeContext&) makes a node. Without `infer` its outputs carry what its first input does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/descriptor.h"
#include "graph/plan.h"
#include "graph/registry.h"

namespace lanewise {

template <class N>
NodeType node_type(std::string name, std::string help, Role role, std::vector<Port> inputs, std::vector<Port> outputs,
                   std::function<void(InferContext&)> infer = nullptr) {
  NodeType type;
  type.name = std::move(name);
  type.help = std::move(help);
  type.role = role;
  type.inputs = std::move(inputs);
  type.outputs = std::move(outputs);
  type.fields = [](Fields& f) {
    typename N::Params params;
    params.fields(f);
  };
  type.same_shapes = infer == nullptr;
  type.infer = infer == nullptr ? infer_same : std::move(infer);
  type.make = [](const NodeContext& context) -> std::unique_ptr<Node> {
    return std::make_unique<N>(context.params<typename N::Params>(), context);
  };
  return type;
}

}  // namespace lanewise
