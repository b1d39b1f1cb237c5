#include "graph/edge.h"

namespace lanewise {

Edge::Edge(Stage& from, Stage& to, int capacity, std::vector<Packet> initial)
    : capacity_(capacity), from_(from), to_(to), slots_(capacity > 0 ? new Packet[capacity] : nullptr) {
  const int count = static_cast<int>(initial.size());
  if (capacity < 1 || count > capacity) throw Error(Exit::kInternal, "an edge holds fewer packets than it starts with");
  for (int i = 0; i < count; ++i) slots_[i] = std::move(initial[i]);
  tail_ = count % capacity;
  fill_ = deepest_ = count;
  put_ = initial.size();
}

Edge::Counts Edge::counts() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {fill_.load(kRelaxed),  deepest_.load(kRelaxed), put_.load(kRelaxed),
          taken_.load(kRelaxed), starved_.load(kRelaxed), blocked_.load(kRelaxed)};
}

bool Edge::consistent() const {
  const Counts c = counts();
  return c.fill >= 0 && c.fill <= capacity_ && c.deepest <= capacity_ &&
         c.put == c.taken + static_cast<std::uint64_t>(c.fill) && tail_ == (head_ + c.fill) % capacity_;
}

void Edge::for_each_left(const std::function<void(const Packet&)>& visit) const {
  for (int i = 0; i < fill(); ++i) visit(slots_[(head_ + i) % capacity_]);
}

}  // namespace lanewise
