// merge: the batches of fused lanes as one, lane by lane: row i of a time step is row i of the first lane's, then come
// the next lane's. lanewise puts it into plans (graph/fuse.h).
//
// What is `known` of some lanes' rows alone is NaN for the others'.
//
// When one of the lanes has no batch, since a stream has ended, there is none for any; all rows are left over.
#include <ATen/ATen.h>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

class Merge final : public Node {
 public:
  struct Params {
    void fields(Fields&) {}
  };
  Merge(const Params&, const NodeContext&) {}

  void fire(Firing& firing) override {
    std::vector<Batch> parts;
    for (Packet& input : firing.inputs()) {
      if (input.is_end()) return firing.end();
      parts.push_back(input.take<Batch>());
    }
    const auto cut = std::ranges::find_if(parts, &Batch::cut);
    if (cut != parts.end()) {
      Batch none{.cut = true, .cut_by = cut->cut_by};
      for (const Batch& part : parts) none.rows.insert(none.rows.end(), part.rows.begin(), part.rows.end());
      firing.emit(0, Packet::of(std::move(none)));
      return firing.end();
    }
    Batch batch{
        .x = side_by_side(parts, &Batch::x), .y = side_by_side(parts, &Batch::y), .known = known_side_by_side(parts)};
    const std::int64_t steps = batch.x.size(0);
    batch.rows.reserve(static_cast<std::size_t>(steps * batch.x.size(1)));
    for (std::int64_t t = 0; t < steps; ++t) {
      for (const Batch& part : parts) {
        const auto rows = std::span(part.rows).subspan(static_cast<std::size_t>(t * part.x.size(1)),
                                                       static_cast<std::size_t>(part.x.size(1)));
        batch.rows.insert(batch.rows.end(), rows.begin(), rows.end());
      }
    }
    firing.emit(0, Packet::of(std::move(batch)));
  }

 private:
  static at::Tensor side_by_side(const std::vector<Batch>& parts, at::Tensor Batch::*which) {
    std::vector<at::Tensor> all;
    for (const Batch& part : parts) all.push_back(part.*which);
    return at::cat(all, 1);
  }

  static at::Tensor known_side_by_side(std::vector<Batch>& parts) {
    if (std::ranges::none_of(parts, [](const Batch& part) { return part.known.defined(); })) return {};
    for (Batch& part : parts) {
      if (!part.known.defined()) part.known = at::full_like(part.y, std::numeric_limits<double>::quiet_NaN());
    }
    return side_by_side(parts, &Batch::known);
  }
};

}  // namespace

NodeType merge() {
  NodeType type = node_type<Merge>("merge", "the batches of fused lanes as one", Role::kJoin,
                                   {{"batches", "batch", /*many=*/true}}, {{"batch", "batch"}});
  type.internal = true;
  return type;
}

}  // namespace lanewise
