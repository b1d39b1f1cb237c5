#include "runtime/ledger.h"

#include "graph/fuse.h"

namespace lanewise {
namespace {

// An edge to a lane, or to where the batches of fused lanes are put together; taps account for nothing.
bool carries_batches(const Plan& plan, const PlanEdge& edge) {
  const NodeType& to = *plan.nodes[edge.to].type;
  return to.role != Role::kSink && to.inputs[edge.to_port].carries == "batch";
}

}  // namespace

void Ledger::close(const Plan& plan, const Flow& flow, const StreamTable& streams) {
  const FlowReport report = flow.report();
  // The one way from a source to its lane: a stream may also feed taps, which account for nothing.
  std::vector<int> stream_of(plan.edges.size(), -1);  // edges that carry samples of one stream
  for (const int join : joins_of_lanes(plan)) {
    const std::vector<int>& inputs = plan.nodes[join].inputs;
    for (const int input : inputs) {
      std::vector<int> way = {input};
      while (!plan.nodes[plan.edges[way.back()].from].inputs.empty()) {
        way.push_back(plan.nodes[plan.edges[way.back()].from].inputs[0]);
      }
      const int source = plan.edges[way.back()].from;
      const int stream = streams.index(plan.nodes[source].id);
      StreamAccount& account = accounts_[stream];
      account.left += flow.node(join).held() / inputs.size();  // of a batch that was filling
      account.produced = report.edges[way.back()].put - (report.nodes[source].ended ? 1 : 0);  // the end is no sample
      for (const int edge : way) {
        stream_of[edge] = stream;
        if (const int from = plan.edges[edge].from; from != source) account.absorbed += report.nodes[from].absorbed;
      }
    }
  }
  flow.for_each_left([&](int edge, const Packet& packet) {
    if (packet.is_end()) return;
    if (stream_of[edge] >= 0) ++accounts_[stream_of[edge]].left;
    if (carries_batches(plan, plan.edges[edge])) {
      for (const Tag& row : packet.get<Batch>().rows) leave(row);
    }
    // In an evaluation, what the score node did not come to; in training, predictions are copies for taps.
    if (plan.evaluating && plan.nodes[plan.edges[edge].to].type->name == "score") {
      for (const Tag& row : packet.get<Prediction>().batch->rows) leave(row);
    }
  });
}

void Ledger::check(const StreamTable& streams) const {
  for (int s = 0; s < streams.size(); ++s) {
    const StreamAccount& a = accounts_[s];
    if (a.balanced()) continue;
    throw Error(Exit::kInternal,
                fmt::format("stream {} does not balance: produced {}, but used {}, fillers {}, absorbed {}, left {}",
                            streams.name(s), a.produced, a.used, a.fillers, a.absorbed, a.left));
  }
}

}  // namespace lanewise
