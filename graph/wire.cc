#include "graph/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "graph/text.h"

namespace lanewise {
namespace {

std::vector<std::string> names_of(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

int find_port(const std::vector<Port>& ports, const std::string& name) {
  const auto it = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  return it == ports.end() ? -1 : static_cast<int>(it - ports.begin());
}

class Wirer {
 public:
  Wirer(const Spec& spec, const Document& document, std::vector<Problem>& problems)
      : spec_(spec), document_(document), problems_(problems) {}

  Wires wire() {
    for (int i = 0; i < static_cast<int>(spec_.nodes.size()); ++i) wire_node(i);
    return std::move(result_);
  }

 private:
  void problem(const Origin& origin, const std::string& rule) {
    problems_.push_back({origin.place(document_), rule});
    result_.sound = false;
  }

  void wire_node(int index) {
    const NodeSpec& node = spec_.nodes[index];
    if (!node.type) result_.sound = false;
    const std::vector<int> ports = node.type ? ports_of(node) : std::vector<int>(node.inputs.size(), -1);
    std::vector<int> fed(node.type ? node.type->inputs.size() : 0, 0);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (ports[i] >= 0) ++fed[ports[i]];
      const InputSpec& input = node.inputs[i];
      result_.sound = result_.sound && input.sound;
      Wire wire{&input, 0, index, -1, 0, ports[i]};
      if (!resolve_from(wire) || ports[i] < 0) continue;
      check(wire);
      result_.wires.push_back(wire);
    }
    for (std::size_t p = 0; p < fed.size(); ++p) {
      const Port& port = node.type->inputs[p];
      if (fed[p] == 0) {
        problem(node.origin, fmt::format("{} {} has nothing on its input \"{}\", which takes {}", node.type->name,
                                         in_quotes(node.id), port.name, port.carries));
      } else if (fed[p] > 1 && !port.many) {
        problem(node.origin.below("in"), fmt::format("{} {} takes one edge on its input \"{}\", not {}",
                                                     node.type->name, in_quotes(node.id), port.name, fed[p]));
      }
    }
  }

  // Per input the port it goes to: by name, or the first that no input has yet, the last for any number where it is
  // `many`.
  std::vector<int> ports_of(const NodeSpec& node) {
    const std::vector<Port>& ports = node.type->inputs;
    std::vector<int> result(node.inputs.size(), -1);
    std::vector<bool> taken(ports.size(), false);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto& name = node.inputs[i].port;
      if (!name) continue;
      result[i] = find_port(ports, *name);
      if (result[i] >= 0) {
        taken[result[i]] = true;
      } else {
        problem(node.inputs[i].origin.below("port"),
                fmt::format("{} has no input {}{}", node.type->name, in_quotes(*name),
                            did_you_mean(*name, names_of(ports))));
      }
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].port) continue;
      const auto free = std::find(taken.begin(), taken.end(), false);
      if (free != taken.end()) {
        result[i] = static_cast<int>(free - taken.begin());
        *free = true;
      } else if (!ports.empty() && ports.back().many) {
        result[i] = static_cast<int>(ports.size()) - 1;
      } else {
        problem(node.inputs[i].origin, ports.empty() ? fmt::format("{} has no input", node.type->name)
                                                     : fmt::format("{} has no input left for this one; it has {}",
                                                                   node.type->name, listed(names_of(ports))));
      }
    }
    return result;
  }

  // Finds the producer and its output.
  bool resolve_from(Wire& wire) {
    const std::string& from = wire.input->from;
    if (from.empty()) {
      if (wire.input->sound) problem(wire.input->origin.below("from"), "input: \"from\" is empty; it names a node");
      return false;
    }
    const auto dot = from.find('.');
    const std::string id = from.substr(0, dot);
    const Origin origin = wire.input->origin.below("from");
    const auto ref = spec_.find(id);
    if (!ref) {
      problem(origin, spec_.unknown(id));
      return false;
    }
    wire.from = ref->node;
    wire.instance = ref->instance;
    const NodeSpec& producer = spec_.nodes[ref->node];
    if (!producer.type) return false;
    const std::vector<Port>& outputs = producer.type->outputs;
    if (outputs.empty()) {
      problem(origin, fmt::format("{} {} has no output", producer.type->name, in_quotes(producer.id)));
      return false;
    }
    if (dot != std::string::npos) {
      const std::string port = from.substr(dot + 1);
      wire.from_port = find_port(outputs, port);
      if (wire.from_port < 0) {
        problem(origin, fmt::format("{} {} has no output {}{}", producer.type->name, in_quotes(producer.id),
                                    in_quotes(port), did_you_mean(port, names_of(outputs))));
        return false;
      }
    }
    return true;
  }

  void check(const Wire& wire) {
    const NodeSpec &producer = spec_.nodes[wire.from], &consumer = spec_.nodes[wire.to];
    const Port &output = producer.type->outputs[wire.from_port], &port = consumer.type->inputs[wire.to_port];
    if (output.carries != port.carries) {
      std::string hint;
      for (const Port& other : producer.type->outputs) {
        if (other.carries == port.carries)
          hint = fmt::format("; did you mean {}?", in_quotes(producer.id + "." + other.name));
      }
      problem(wire.input->origin.below("from"),
              fmt::format("the input \"{}\" of {} {} takes {}, but the output \"{}\" of {} {} carries {}{}", port.name,
                          consumer.type->name, in_quotes(consumer.id), port.carries, output.name, producer.type->name,
                          in_quotes(producer.id), output.carries, hint));
    }
    if (wire.input->initial > 1) {
      problem(wire.input->origin.below("initial"),
              fmt::format(
                  "input: \"initial\" must be 1, not {}: with more, weights would be stale, and they carry no version",
                  wire.input->initial));
    } else if (wire.input->initial == 1 && !producer.type->closes_cycles) {
      problem(wire.input->origin.below("initial"),
              fmt::format("{} {} has no packet to start with; \"initial\" is for cycles of "
                          "weights, on the input that comes from an optimizer",
                          producer.type->name, in_quotes(producer.id)));
    }
  }

  const Spec& spec_;
  const Document& document_;
  std::vector<Problem>& problems_;
  Wires result_;
};

// A cycle among the nodes that are not `placed`, as wires that each feed the next one's producer's consumer, backwards.
// Requires: each of those nodes has an open wire from another.
std::vector<const Wire*> find_cycle(const std::vector<std::vector<const Wire*>>& inputs,
                                    const std::vector<bool>& placed) {
  std::vector<const Wire*> path;
  std::vector<int> at(placed.size(), -1);  // where on the path a node was the consumer
  int node = static_cast<int>(std::find(placed.begin(), placed.end(), false) - placed.begin());
  while (at[node] < 0) {
    at[node] = static_cast<int>(path.size());
    const auto open =
        std::find_if(inputs[node].begin(), inputs[node].end(), [&](const Wire* w) { return !placed[w->from]; });
    path.push_back(*open);
    node = (*open)->from;
  }
  path.erase(path.begin(), path.begin() + at[node]);
  return path;
}

}  // namespace

Wires wire(const Spec& spec, const Document& document, std::vector<Problem>& problems) {
  return Wirer(spec, document, problems).wire();
}

std::vector<int> order(const Spec& spec, Wires& wires, const Document& document, std::vector<Problem>& problems) {
  const std::size_t n = spec.nodes.size();
  std::vector<std::vector<const Wire*>> inputs(n), outputs(n);
  std::vector<int> open(n, 0);
  for (const Wire& wire : wires.wires) {
    if (wire.input->initial > 0) continue;
    inputs[wire.to].push_back(&wire);
    outputs[wire.from].push_back(&wire);
    ++open[wire.to];
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < n; ++i) {
    if (open[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> result;
  std::vector<bool> placed(n, false);
  while (result.size() < n) {
    if (ready.empty()) {
      const std::vector<const Wire*> cycle = find_cycle(inputs, placed);
      std::string text = in_quotes(spec.nodes[cycle.front()->to].id);
      for (auto it = cycle.rbegin(); it != cycle.rend(); ++it) text += " -> " + in_quotes(spec.nodes[(*it)->to].id);
      auto closing = std::find_if(cycle.begin(), cycle.end(),
                                  [&](const Wire* w) { return spec.nodes[w->from].type->closes_cycles; });
      const bool can_close = closing != cycle.end();
      if (!can_close) closing = std::min_element(cycle.begin(), cycle.end());  // wires lie in file order
      problems.push_back({(*closing)->input->origin.place(document),
                          text + (can_close ? " is a cycle that cannot start; give this input \"initial\": 1"
                                            : " is a cycle; only the weights of an optimizer may go back")});
      wires.sound = false;
      std::erase(inputs[(*closing)->to], *closing);
      std::erase(outputs[(*closing)->from], *closing);
      if (--open[(*closing)->to] == 0) ready.push((*closing)->to);
      continue;
    }
    const int node = ready.top();
    ready.pop();
    placed[node] = true;
    result.push_back(node);
    for (const Wire* wire : outputs[node]) {
      if (--open[wire->to] == 0) ready.push(wire->to);
    }
  }
  return result;
}

}  // namespace lanewise
