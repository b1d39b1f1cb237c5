// merge: the batches of fused lanes as one, lane by lane: row i of a time step is row i of the first lane's, then come
// the next lane's. lanewise puts it into plans (graph/fuse.h).
//
// What is `known` of some lanes' rows alone is NaN for the others'.
//
// When one of the lanes has no batch, since a stream has ended, there is none for any; all rows are left over.
#include <ATen/ATen.h>

#include <cstring>

#include "nodes/builtin.h"
#include "nodes/node_type.h"
#include "runtime/tensor_ring.h"
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
    parts_.clear();
    for (Packet& input : firing.inputs()) {
      if (input.is_end()) return firing.end();
      parts_.push_back(input.take<Batch>());
    }
    const auto cut = std::ranges::find_if(parts_, &Batch::cut);
    if (cut != parts_.end()) {
      Batch none{.cut = true, .cut_by = cut->cut_by};
      for (const Batch& part : parts_) none.rows.insert(none.rows.end(), part.rows.begin(), part.rows.end());
      firing.emit(0, Packet::of(std::move(none)));
      return firing.end();
    }
    Batch batch{.x = side_by_side(&Batch::x, xs_), .y = side_by_side(&Batch::y, ys_), .known = known_side_by_side()};
    const std::int64_t steps = batch.x.size(0);
    batch.rows.reserve(static_cast<std::size_t>(steps * batch.x.size(1)));
    for (std::int64_t t = 0; t < steps; ++t) {
      for (Batch& part : parts_) {
        const auto rows = std::span(part.rows).subspan(static_cast<std::size_t>(t * part.x.size(1)),
                                                       static_cast<std::size_t>(part.x.size(1)));
        std::ranges::move(rows, std::back_inserter(batch.rows));
      }
    }
    parts_.clear();
    firing.emit(0, Packet::of(std::move(batch)));
  }

 private:
  // [steps, n of all lanes, …]
  at::Tensor side_by_side(at::Tensor Batch::*which, TensorRing& ring) {
    for (Batch& part : parts_) part.*which = (part.*which).contiguous();
    const at::Tensor& first = parts_.front().*which;
    at::DimVector shape(first.sizes());
    shape[1] = 0;
    for (const Batch& part : parts_) shape[1] += part.x.size(1);
    at::Tensor all = ring.next(shape, first.scalar_type());
    auto* to = static_cast<char*>(all.mutable_data_ptr());
    for (std::int64_t t = 0; t < shape[0]; ++t) {
      for (const Batch& part : parts_) {
        const std::size_t bytes = (part.*which).nbytes() / static_cast<std::size_t>(shape[0]);
        std::memcpy(to, static_cast<const char*>((part.*which).const_data_ptr()) + static_cast<std::size_t>(t) * bytes,
                    bytes);
        to += bytes;
      }
    }
    return all;
  }

  at::Tensor known_side_by_side() {
    if (std::ranges::none_of(parts_, [](const Batch& part) { return part.known.defined(); })) return {};
    for (Batch& part : parts_) {
      if (!part.known.defined()) part.known = at::full_like(part.y, std::numeric_limits<double>::quiet_NaN());
    }
    return side_by_side(&Batch::known, known_);
  }

  std::vector<Batch> parts_;  // of the firing in progress
  TensorRing xs_, ys_, known_;
};

}  // namespace

NodeType merge() {
  NodeType type = node_type<Merge>("merge", "the batches of fused lanes as one", Role::kJoin,
                                   {{"batches", "batch", /*many=*/true}}, {{"batch", "batch"}});
  type.internal = true;
  return type;
}

}  // namespace lanewise
