// dump_text: a plan as tables for people. Instances of a node that are alike share a row.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "graph/dump.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; numbers are the caller's to align.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width(row[i]) + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// "opt", "gen0…gen15" for the first and last of several.
std::string range(const std::string& first, const std::string& last) {
  return escaped(first) + (first == last ? "" : "…" + escaped(last));
}

// The producers of one port, as one entry of "in" wrote them: how many of which node.
struct Feed {
  std::string base;
  int from_port = 0, to_port = 0, capacity = 0, initial = 0, count = 0;
  int first = 0, last = 0;  // producers, indices into Plan::nodes

  auto pattern() const { return std::tie(base, from_port, to_port, capacity, initial, count); }
};

std::vector<Feed> feeds_of(const Plan& plan, const PlanNode& node) {
  std::vector<Feed> feeds;
  for (const int e : node.inputs) {
    const PlanEdge& edge = plan.edges[e];
    const PlanNode& from = plan.nodes[edge.from];
    Feed feed{from.base, edge.from_port, edge.to_port, edge.capacity, edge.initial, 1, edge.from, edge.from};
    if (!feeds.empty()) {
      feed.count = feeds.back().count;
      if (feed.pattern() == feeds.back().pattern()) {
        ++feeds.back().count;
        feeds.back().last = edge.from;
        continue;
      }
      feed.count = 1;
    }
    feeds.push_back(feed);
  }
  return feeds;
}

std::string outputs_text(const PlanNode& node) {
  std::string text;
  for (std::size_t port = 0; port < node.signatures.size(); ++port) {
    text += fmt::format("{}{}: {}", port == 0 ? "" : "; ", node.type->outputs[port].name, node.signatures[port].text());
  }
  return text;
}

// Nodes that share a row.
struct Group {
  std::vector<int> members;  // indices into Plan::nodes
  std::vector<std::vector<Feed>> feeds;
};

std::vector<Group> groups_of(const Plan& plan) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> last;  // by base, the group that its latest member is in
  for (int i = 0; i < static_cast<int>(plan.nodes.size()); ++i) {
    const PlanNode& node = plan.nodes[i];
    const std::vector<Feed> feeds = feeds_of(plan, node);
    const auto alike = [&](const Group& group) {
      const PlanNode& other = plan.nodes[group.members.back()];
      return outputs_text(other) == outputs_text(node) &&
             std::equal(feeds.begin(), feeds.end(), group.feeds.back().begin(), group.feeds.back().end(),
                        [](const Feed& a, const Feed& b) { return a.pattern() == b.pattern(); });
    };
    const auto it = last.find(node.base);
    if (it == last.end() || !alike(groups[it->second])) {
      last[node.base] = groups.size();
      groups.emplace_back();
    }
    Group& group = groups[last[node.base]];
    group.members.push_back(i);
    group.feeds.push_back(feeds);
  }
  return groups;
}

// "norm0…norm15, 2 each, capacity 4; opt, capacity 2, initial 1".
std::string inputs_text(const Plan& plan, const Group& group) {
  std::string text;
  for (std::size_t f = 0; f < group.feeds[0].size(); ++f) {
    const Feed &first = group.feeds.front()[f], &last = group.feeds.back()[f];
    const PlanNode& from = plan.nodes[first.first];
    if (f > 0) text += "; ";
    text += range(from.id, plan.nodes[last.last].id);
    if (first.from_port > 0) text += "." + from.type->outputs[first.from_port].name;
    if (first.first != last.first) text += fmt::format(", {} each", first.count);
    text += fmt::format(", capacity {}", first.capacity);
    if (first.initial > 0) text += fmt::format(", initial {}", first.initial);
  }
  return text;
}

std::string name_of(const Plan& plan, const Group& group) {
  const std::string names = range(plan.nodes[group.members.front()].id, plan.nodes[group.members.back()].id);
  return group.members.size() == 1 ? names : fmt::format("{} ({})", names, group.members.size());
}

std::string nodes_table(const Plan& plan, const std::vector<Group>& groups) {
  std::vector<Row> rows{{"node", "type", "device", "inputs", "outputs"}};
  for (const Group& group : groups) {
    const PlanNode &first = plan.nodes[group.members.front()], &last = plan.nodes[group.members.back()];
    rows.push_back({name_of(plan, group), first.type->name, range(first.device, last.device), inputs_text(plan, group),
                    outputs_text(first)});
  }
  return table(rows);
}

std::string work_table(const Plan& plan, const std::vector<Group>& groups, const FlowReport& report) {
  std::vector<Row> rows{{"node", "fired", "absorbed", "busy", "starved", "blocked"}};
  for (const Group& group : groups) {
    std::uint64_t fired = 0, absorbed = 0;
    double busy = 0, starved = 0, blocked = 0;
    for (const int i : group.members) {
      const NodeReport& node = report.nodes.at(i);
      fired += node.fired;
      absorbed += node.absorbed;
      busy += node.busy;
      starved += node.starved;
      blocked += node.blocked;
    }
    const auto percent = [&](double sum) {
      return fmt::format("{:.0f} %", 100 * sum / static_cast<double>(group.members.size()));
    };
    rows.push_back({name_of(plan, group), fmt::format("{}", fired), fmt::format("{}", absorbed), percent(busy),
                    percent(starved), percent(blocked)});
  }
  return table(rows);
}

std::string edges_table(const Plan& plan, const std::vector<Group>& groups, const FlowReport& report) {
  std::vector<Row> rows{{"edges into", "from", "edges", "deepest", "put", "taken", "left", "starved", "blocked"}};
  for (const Group& group : groups) {
    for (std::size_t f = 0, edge = 0; f < group.feeds[0].size(); ++f) {
      const Feed &first = group.feeds.front()[f], &last = group.feeds.back()[f];
      EdgeReport sum;
      std::size_t edges = 0;
      for (const int i : group.members) {
        for (int k = 0; k < first.count; ++k, ++edges) {
          const EdgeReport& one = report.edges.at(plan.nodes[i].inputs[edge + k]);
          sum.deepest = std::max(sum.deepest, one.deepest);
          sum.put += one.put;
          sum.taken += one.taken;
          sum.left += one.left;
          sum.starved_s += one.starved_s;
          sum.blocked_s += one.blocked_s;
        }
      }
      edge += first.count;
      rows.push_back({f == 0 ? name_of(plan, group) : "", range(plan.nodes[first.first].id, plan.nodes[last.last].id),
                      fmt::format("{}", edges), fmt::format("{} of {}", sum.deepest, first.capacity),
                      fmt::format("{}", sum.put), fmt::format("{}", sum.taken), fmt::format("{}", sum.left),
                      fmt::format("{:.3f} s", sum.starved_s), fmt::format("{:.3f} s", sum.blocked_s)});
    }
  }
  return table(rows);
}

}  // namespace

std::string dump_text(const Plan& plan, const FlowReport* report) {
  const std::vector<Group> groups = groups_of(plan);
  std::string text = fmt::format(
      "{}{}: {}, {}, {}, {}\ndigest {}\n\n", escaped(plan.name), plan.evaluating ? ", evaluation" : "",
      counted(plan.nodes.size(), "node"), counted(plan.edges.size(), "edge"),
      counted(plan.with_role(Role::kSource).size(), "stream"), counted(plan.lane_count(), "lane"), plan.digest);
  text += nodes_table(plan, groups);
  if (!plan.fusion.empty()) text += "\n" + escaped(plan.fusion) + "\n";
  if (report) text += "\n" + work_table(plan, groups, *report) + "\n" + edges_table(plan, groups, *report);
  for (const std::string& note : plan.notes) text += "note: " + escaped(note) + "\n";
  return text;
}

}  // namespace lanewise
