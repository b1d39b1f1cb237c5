#include <thread>

#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

using Lines = std::vector<std::string>;

// What comes out for three samples and the end: a text each, "-" for nothing, "end" for the end.
Lines through(const nlohmann::json& params) {
  const Bench bench({{"gen0", constant()}, {"fault0", fault(), params, {"gen0"}}});
  NodeRunner node(bench, "fault0");
  Lines lines;
  std::vector<Packet> packets;
  for (int i = 0; i < 3; ++i) packets.push_back(Packet::of(make_sample({double(i)}, {0}, i)));
  packets.emplace_back();
  for (const Packet& packet : packets) {
    std::string line;
    const std::string error = error_of([&] {
      const Fired fired = node.fire({packet});
      // A loss is uncounted; only the sample that an early end takes is told of.
      CHECK(fired.absorbed == (fired.ended && !packet.is_end() ? 1 : 0));
      line = fired.ended ? "end" : fired.packet ? text(fired.sample()->x) : "-";
    });
    lines.push_back(error.empty() ? line : error);
    if (line == "end") break;
  }
  return lines;
}

TEST_CASE("fault: without a place it lets everything pass") { CHECK(through({}) == Lines{"0", "1", "2", "end"}); }

TEST_CASE("fault: goes wrong at its sample alone") {
  CHECK(through({{"at", 1}}) == Lines{"0", "70: thrown on purpose at sample 1", "2", "end"});
  CHECK(through({{"at", 1}, {"kind", "nan"}}) == Lines{"0", "nan", "2", "end"});
  CHECK(through({{"at", 1}, {"kind", "sleep"}, {"seconds", 0.001}}) == Lines{"0", "1", "2", "end"});
  CHECK(through({{"at", 1}, {"kind", "swallow"}}) == Lines{"0", "-", "2", "end"});
}

TEST_CASE("fault: ends early, or loses all that follows") {
  CHECK(through({{"at", 1}, {"kind", "end"}}) == Lines{"0", "end"});
  CHECK(through({{"at", 1}, {"kind", "stall"}}) == Lines{"0", "-", "-", "-"});
}

TEST_CASE("fault: holds until it is interrupted, also when that came first") {
  const Bench bench({{"gen0", constant()}, {"fault0", fault(), {{"at", 0}, {"kind", "hold"}}, {"gen0"}}});
  NodeRunner node(bench, "fault0"), early(bench, "fault0");
  {
    const std::jthread waker([&node] { node.node().interrupt(); });
    CHECK(node.fire({Packet::of(make_sample({1}, {1}))}).packet);
  }
  early.node().interrupt();
  CHECK(early.fire({Packet::of(make_sample({1}, {1}))}).packet);
  CHECK(bench.node("fault0").type->may_wait);
}

}  // namespace
}  // namespace lanewise
