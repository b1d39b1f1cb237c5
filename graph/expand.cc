#include "graph/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "graph/cut.h"
#include "graph/text.h"
#include "graph/wire.h"

namespace lanewise {
namespace {

constexpr std::int64_t kMaxEdges = 1'000'000;
constexpr int kMaxDevices = 4096;

// "cuda:3", "cpu:*", "auto:*".
struct Device {
  std::string kind;
  std::optional<int> index;  // nullopt: *
};

std::optional<Device> parse_device(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  Device device{text.substr(0, colon), std::nullopt};
  const std::string rest = text.substr(colon + 1);
  if (device.kind != "cpu" && device.kind != "cuda" && device.kind != "auto") return std::nullopt;
  if (rest == "*") return device;
  int index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc() || end != rest.data() + rest.size() || rest[0] == '-' || device.kind == "auto")
    return std::nullopt;
  device.index = index;
  return device;
}

class Expander {
 public:
  Expander(const Spec& spec, const Document& document, int gpus, int hosts, std::vector<Problem>& problems)
      : spec_(spec), document_(document), gpus_(gpus), hosts_(hosts), problems_(problems) {}

  Wiring expand() {
    Wires wires = wire(spec_, document_, problems_);
    const std::vector<int> nodes = order(spec_, wires, document_, problems_);
    result_.sound = wires.sound && spec_.named;
    make_instances(nodes);
    place_on_devices();
    for (const Wire& wire : wires.wires) {
      if (!multiply(wire)) break;
    }
    if (result_.sound) check_readers();
    std::stable_sort(result_.edges.begin(), result_.edges.end(), [](const PlanEdge& a, const PlanEdge& b) {
      return std::pair(a.to, a.to_port) < std::pair(b.to, b.to_port);
    });
    return std::move(result_);
  }

 private:
  void problem(const Place& place, const std::string& rule, Exit exit = Exit::kPipeline) {
    problems_.push_back({place, rule, exit});
    result_.sound = false;
  }

  void make_instances(const std::vector<int>& nodes) {
    first_.resize(spec_.nodes.size());
    for (const int i : nodes) {
      const NodeSpec& node = spec_.nodes[i];
      first_[i] = static_cast<int>(result_.instances.size());
      for (int k = 0; k < node.count(); ++k) result_.instances.push_back({i, k, node.type, node.instance_id(k), ""});
    }
  }

  // Lanes are counted in file order: of L lanes on G GPUs, lane i goes to floor(i * G / L), the lanes of each
  // host counted by themselves; on the CPU each has its own.
  void place_on_devices() {
    struct Lane {
      Instance* instance;
      Origin origin;
    };
    std::vector<Lane> on_gpus;
    std::optional<Lane> first_on_gpu, first_on_host;
    int on_cpu = 0;
    for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
      const NodeSpec& node = spec_.nodes[i];
      if (!node.type) continue;
      if (!node.type->has_device) {
        const std::string rule = fmt::format("{} takes no device", node.type->name);
        if (node.device) problem(node.device_origin.place(document_), rule);
        for (const NodeChange& change : node.device_changes) problem(change.origin.place(document_), rule);
        continue;
      }
      for (int k = 0; k < node.count(); ++k) {
        Instance& instance = result_.instances[first_[i] + k];
        std::string text = node.device.value_or(kDefaultDevice);
        Origin origin = node.device_origin;
        for (const NodeChange& change : node.device_changes) {
          if (!change.instances.contains(k)) continue;
          text = change.value ? change.value->get<std::string>() : kDefaultDevice;
          origin = change.origin;
        }
        std::optional<Device> device = parse_device(text);
        if (!device) {
          problem(origin.place(document_),
                  fmt::format("{} is no device; write cpu:N, cpu:*, cuda:N, cuda:* or auto:*", in_quotes(text)));
          continue;
        }
        if (device->kind == "auto") device->kind = gpus_ > 0 ? "cuda" : "cpu";
        if (device->kind == "cuda" && gpus_ > 0 && device->index.value_or(0) >= gpus_) {
          problem(origin.place(document_),
                  fmt::format("{} is not here: {} visible; \"auto:*\" takes what there is", in_quotes(text),
                              counted(gpus_, "GPU") + (gpus_ == 1 ? " is" : " are")),
                  Exit::kDevice);
        } else if (device->index.value_or(0) >= kMaxDevices) {
          problem(origin.place(document_),
                  fmt::format("{} is too high; the last is {}:{}", in_quotes(text), device->kind, kMaxDevices - 1));
        } else if (device->index) {
          instance.device = fmt::format("{}:{}", device->kind, *device->index);  // "cuda:00" is cuda:0
        } else if (device->kind == "cpu") {
          instance.device = fmt::format("cpu:{}", on_cpu++);
        } else {
          on_gpus.push_back({&instance, origin});
        }
        std::optional<Lane>& first = device->kind == "cuda" ? first_on_gpu : first_on_host;
        if (!first) first = {&instance, origin};
      }
    }
    const std::size_t gpus = gpus_ > 0 ? static_cast<std::size_t>(gpus_) : on_gpus.size();  // none here: one a lane
    for (int host = 0; host < hosts_; ++host) {
      const LaneRange here = lanes_of(static_cast<int>(on_gpus.size()), host, hosts_);
      for (int lane = here.begin; lane < here.end; ++lane) {
        on_gpus[lane].instance->device =
            fmt::format("cuda:{}", static_cast<std::size_t>(lane - here.begin) * gpus / here.count());
      }
    }
    if (result_.sound && first_on_gpu && first_on_host) {
      const Instance &gpu = *first_on_gpu->instance, &host = *first_on_host->instance;
      const Lane& later = &gpu > &host ? *first_on_gpu : *first_on_host;
      problem(
          later.origin.place(document_),
          fmt::format("{} is on a GPU and {} on the host; lanes that train together are all on GPUs (\"cuda:*\"), or "
                      "all on the host (\"cpu:*\")",
                      gpu.id, host.id));
    }
  }

  // Makes the edges of one wire. False: there are too many.
  bool multiply(const Wire& wire) {
    const NodeSpec &producer = spec_.nodes[wire.from], &consumer = spec_.nodes[wire.to];
    const std::int64_t begin = wire.instance < 0 ? 0 : wire.instance;
    const std::int64_t there = wire.instance < 0 ? producer.count() : 1;
    const std::int64_t take = std::clamp(wire.input->take.value_or(there), std::int64_t{1}, kMaxEdges);
    const Port& port = consumer.type->inputs[wire.to_port];
    if (!port.many && std::min(take, there) > 1) {
      problem(
          wire.input->origin.place(document_),
          fmt::format(
              "the input \"{}\" of {} {} takes one edge, but this gives {} {} {} instances of {}; write \"take\": 1{}",
              port.name, consumer.type->name, in_quotes(consumer.id), consumer.repeat ? "each instance" : "it",
              wire.input->take ? "the next" : "all", std::min(take, there), in_quotes(producer.id),
              consumer.repeat ? "" : fmt::format(" and \"repeat\": {}", there)));
      return true;
    }
    if (static_cast<std::int64_t>(result_.edges.size()) + std::min(take, there) * consumer.count() > kMaxEdges) {
      problem(wire.input->origin.place(document_), fmt::format("more than {} edges", kMaxEdges));
      return false;
    }
    for (std::int64_t k = 0; k < consumer.count(); ++k) {
      const std::int64_t from = wire.input->take ? k * take : 0;
      if (from >= there && wire.instance >= 0) {
        problem(wire.input->origin.place(document_),
                fmt::format("{} is one node; there is nothing in it to take for {} {}", in_quotes(wire.input->from),
                            consumer.type->name, in_quotes(consumer.instance_id(k))));
        return true;
      }
      if (from >= there) {
        problem(
            wire.input->origin.place(document_),
            fmt::format("{} {} would take {}, but there {} only {} {} (repeat: {}; {} x {} are needed)",
                        consumer.type->name, in_quotes(consumer.instance_id(k)),
                        instances_text(producer.id, begin + from, begin + from + take - 1), there == 1 ? "is" : "are",
                        there, in_quotes(producer.id) + (there == 1 ? " node" : " nodes"), producer.count(),
                        consumer.count(), take));
        return true;
      }
      for (std::int64_t p = from; p < std::min(from + take, there); ++p) {
        result_.edges.push_back({static_cast<int>(first_[wire.from] + begin + p), wire.from_port,
                                 static_cast<int>(first_[wire.to] + k), wire.to_port,
                                 static_cast<int>(wire.input->capacity), static_cast<int>(wire.input->initial)});
      }
    }
    return true;
  }

  // A source that nobody reads, or instances that nobody reads while others are read.
  void check_readers() {
    std::vector<bool> read(result_.instances.size(), false);
    for (const PlanEdge& edge : result_.edges) read[edge.from] = true;
    for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
      const NodeSpec& node = spec_.nodes[i];
      if (node.type->outputs.empty()) continue;
      std::vector<std::string> unread;
      for (int k = 0; k < node.count(); ++k) {
        if (!read[first_[i] + k]) unread.push_back(escaped(node.instance_id(k)));
      }
      const std::size_t n = unread.size();
      if (n == static_cast<std::size_t>(node.count())) {
        if (node.type->role == Role::kSource) {
          problem(node.origin.place(document_), fmt::format("{} {} is read by nobody; name it in another node's \"in\"",
                                                            node.type->name, in_quotes(node.id)));
        }
      } else if (n > 0) {
        constexpr std::size_t kNamed = 4;
        if (n > kNamed) {
          unread.resize(kNamed - 1);
          unread.push_back(fmt::format("{} more", n - kNamed + 1));
        }
        problem(node.origin.place(document_),
                fmt::format("{} {} read by nobody, unlike the rest of {}; what reads it takes {} of {}", listed(unread),
                            n == 1 ? "is" : "are", in_quotes(node.id), node.count() - n, node.count()));
      }
    }
  }

  const Spec& spec_;
  const Document& document_;
  const int gpus_, hosts_;
  std::vector<Problem>& problems_;
  std::vector<int> first_;  // by index into Spec::nodes, its first instance
  Wiring result_;
};

}  // namespace

Wiring expand(const Spec& spec, const Document& document, int gpus, int hosts, std::vector<Problem>& problems) {
  return Expander(spec, document, gpus, hosts, problems).expand();
}

Wiring expand_evaluation(const Wiring& train, const NodeType& score) {
  const std::size_t n = train.instances.size();
  std::vector<bool> kept(n, true);
  std::size_t e = 0;  // edges are sorted by consumer, and consumers stand behind their producers
  for (std::size_t i = 0; i < n; ++i) {
    const Role role = train.instances[i].type->role;
    if (role == Role::kReduce || role == Role::kOptimizer) kept[i] = false;
    std::vector<int> lost, whole;  // by port: a dropped producer, a kept one
    for (; e < train.edges.size() && train.edges[e].to == static_cast<int>(i); ++e) {
      const PlanEdge& edge = train.edges[e];
      if (edge.initial == 0) (kept[edge.from] ? whole : lost).push_back(edge.to_port);
    }
    for (const int port : lost) {
      if (std::find(whole.begin(), whole.end(), port) == whole.end()) kept[i] = false;
    }
  }

  Wiring result;
  std::vector<int> index(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    if (!kept[i]) continue;
    index[i] = static_cast<int>(result.instances.size());
    result.instances.push_back(train.instances[i]);
  }
  for (PlanEdge edge : train.edges) {
    if (!kept[edge.from] || !kept[edge.to] || edge.initial > 0) continue;
    edge.from = index[edge.from];
    edge.to = index[edge.to];
    result.edges.push_back(edge);
  }
  const int last = static_cast<int>(result.instances.size());
  for (int i = 0; i < last; ++i) {
    const NodeType& type = *result.instances[i].type;
    for (int port = 0; type.role == Role::kCompute && port < static_cast<int>(type.outputs.size()); ++port) {
      if (type.outputs[port].carries == "prediction") result.edges.push_back({i, port, last, 0, 2, 0});
    }
  }
  result.instances.push_back({-1, 0, &score, "score", ""});
  return result;
}

}  // namespace lanewise
