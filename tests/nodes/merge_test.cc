#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

Bench bench() {
  return Bench({{"gen0", constant()},
                {"gen1", constant()},
                {"pair0", pair(), nlohmann::json::object(), {"gen0"}},
                {"pair1", pair(), nlohmann::json::object(), {"gen1"}},
                {"merge", merge(), nlohmann::json::object(), {"pair0", "pair1"}}});
}

// Two time steps of one stream, whose x is 10 * stream + step.
Batch batch_of(int stream, std::uint64_t seq) {
  Batch batch{.x = make_tensor(std::vector<double>{10.0 * stream, 10.0 * stream + 1}, {2, 1, 1}, at::kFloat),
              .y = make_tensor(std::vector<double>{0, 1}, {2, 1, 1}, at::kFloat)};
  for (std::uint64_t step = 0; step < 2; ++step) batch.rows.push_back({.stream = stream, .seq = seq + step});
  return batch;
}

std::string rows_of(const Batch& batch) {
  std::string text;
  for (const Tag& row : batch.rows) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", row.stream, row.seq);
  return text;
}

TEST_CASE("merge: the lanes' rows stand side by side within each time step") {
  const Bench made = bench();
  NodeRunner node(made, "merge");
  const Batch batch = node.fire({Packet::of(batch_of(0, 4)), Packet::of(batch_of(1, 4))}).packet->get<Batch>();
  CHECK(batch.x.sizes() == at::IntArrayRef({2, 2, 1}));
  CHECK(text(batch.x) == "0 10 1 11");
  CHECK(text(batch.y) == "0 0 1 1");
  CHECK(rows_of(batch) == "0:4 1:4 0:5 1:5");
  CHECK_FALSE(batch.known.defined());
}

TEST_CASE("merge: what is not known stands as NaN beside what is") {
  const Bench made = bench();
  NodeRunner node(made, "merge");
  Batch known = batch_of(1, 0);
  known.known = known.y.clone();
  CHECK(text(node.fire({Packet::of(batch_of(0, 0)), Packet::of(known)}).packet->get<Batch>().known) == "nan 0 nan 1");
}

TEST_CASE("merge: where one lane has no batch, no lane has, and all rows are told of") {
  const Bench made = bench();
  NodeRunner node(made, "merge");
  Batch cut{.cut = true, .cut_by = "gen1"};
  const Batch batch = node.fire({Packet::of(batch_of(0, 0)), Packet::of(cut)}).packet->get<Batch>();
  CHECK(batch.cut);
  CHECK(batch.cut_by == "gen1");
  CHECK(rows_of(batch) == "0:0 0:1");
}

}  // namespace
}  // namespace lanewise
