#include "runtime/cursor.h"

#include <fmt/format.h>

#include "graph/fuse.h"

namespace lanewise {

void Cursors::take(const Tag& row) {
  Cursor& cursor = cursors_[row.stream];
  cursor.consumed = row.seq + 1;
  cursor.run = row.run;
  if (row.start) cursor.since_start = 0;
  ++cursor.since_start;
  if (row.time) cursor.time = row.time;
  if (row.record) {
    cursor.record = row.record;
    cursor.record_seq = row.seq;
  }
}

nlohmann::ordered_json Cursors::save(const StreamTable& streams) const {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (int s = 0; s < streams.size(); ++s) {
    const Cursor& cursor = cursors_[s];
    nlohmann::ordered_json chain = nlohmann::ordered_json::array();
    for (const ChainRecord* at = cursor.record.get(); at != nullptr; at = at->above.get()) {
      chain.push_back({{"node", at->node}, {"state", at->state}});
    }
    nlohmann::ordered_json& saved = all[streams.name(s)] = {
        {"consumed", cursor.consumed}, {"run", cursor.run}, {"since_start", cursor.since_start}};
    saved["time"] = cursor.time ? nlohmann::ordered_json(*cursor.time) : nullptr;
    saved["record_seq"] = cursor.record_seq;
    saved["chain"] = std::move(chain);
  }
  return all;
}

void Cursors::load(const nlohmann::json& saved, const StreamTable& streams) {
  for (int s = 0; s < streams.size(); ++s) {
    const auto it = saved.find(streams.name(s));
    if (it == saved.end()) {
      throw Error(Exit::kCheckpoint, fmt::format("the checkpoint knows no stream \"{}\"", streams.name(s)));
    }
    Cursor& cursor = cursors_[s];
    cursor.consumed = it->at("consumed");
    cursor.run = it->at("run");
    cursor.since_start = it->at("since_start");
    if (!it->at("time").is_null()) cursor.time = it->at("time").get<std::int64_t>();
    cursor.record_seq = it->at("record_seq");
    const nlohmann::json& chain = it->at("chain");
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      cursor.record = std::make_shared<ChainRecord>(link->at("node"), link->at("state"), cursor.record);
    }
  }
}

void Cursors::rewind(const Plan& plan, const StreamTable& streams, std::vector<std::unique_ptr<Node>>& nodes) const {
  for (const int join : joins_of_lanes(plan)) {
    std::vector<std::uint64_t> since_start;
    std::uint64_t seq = 0;
    for (const int input : plan.nodes[join].inputs) {
      const int last = plan.edges[input].from;
      const Cursor& cursor = cursors_[streams.index(plan.nodes[source_above(plan, last)].id)];
      for (const ChainRecord* at = cursor.record.get(); at != nullptr; at = at->above.get()) {
        const PlanNode* const node = plan.find(at->node);
        if (node == nullptr) {
          throw Error(Exit::kCheckpoint,
                      fmt::format("the checkpoint holds the state of {}, which is not in this pipeline", at->node));
        }
        nodes[node - plan.nodes.data()]->restore(at->state);
      }
      if (!nodes[last]->skip(cursor.consumed - cursor.record_seq)) {
        throw Error(Exit::kCheckpoint,
                    fmt::format("{} cannot go back to where the checkpoint was taken", plan.nodes[last].id));
      }
      since_start.push_back(cursor.since_start);
      seq = cursor.consumed;
    }
    nodes[join]->restore({{"seq", seq}, {"since_start", since_start}});
  }
}

}  // namespace lanewise
