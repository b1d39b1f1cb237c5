// A Packet is what travels on an edge: a value of any type, or the end of the stream.
//
// A packet is moved from node to node and copied only where an output feeds several edges; copies share the value,
// which nobody may change unless take() says that it is the only owner. One pointer in size; a copy is one atomic
// increment and never allocates.
//
// Different packets may be used from different threads, also when they share a value.
#pragma once

#include <atomic>
#include <cstdint>
#include <typeinfo>
#include <utility>

#include "graph/error.h"

namespace lanewise {

class Packet {
 public:
  Packet() = default;  // the end of a stream
  Packet(const Packet& other) : box_(other.box_) {
    if (box_ != nullptr) box_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Packet(Packet&& other) noexcept : box_(std::exchange(other.box_, nullptr)) {}
  Packet& operator=(Packet other) noexcept {
    std::swap(box_, other.box_);
    return *this;
  }
  ~Packet() {
    if (box_ != nullptr && (only_owner() || box_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)) delete box_;
  }

  template <class T>
  static Packet of(T value) {
    Packet p;
    p.box_ = new Held<T>(std::move(value));
    return p;
  }

  bool is_end() const { return box_ == nullptr; }

  template <class T>
  bool holds() const {
    return box_ != nullptr && *box_->type == typeid(T);
  }

  // The value. Requires: it holds a T (else an internal Error, since ports are checked when the plan is made).
  template <class T>
  const T& get() const {
    if (!holds<T>()) throw Error(Exit::kInternal, "a packet does not hold what its port promises");
    return static_cast<const Held<T>*>(box_)->value;
  }

  // Takes the value out: moved when this packet is its only owner, else copied. The packet then is empty.
  template <class T>
  T take() {
    get<T>();
    const Packet packet = std::move(*this);
    T& value = static_cast<Held<T>*>(packet.box_)->value;
    return packet.only_owner() ? T(std::move(value)) : T(value);
  }

 private:
  struct Box {
    explicit Box(const std::type_info& t) : type(&t) {}
    virtual ~Box() = default;
    const std::type_info* const type;
    std::atomic<std::uint32_t> owners{1};
  };
  template <class T>
  struct Held final : Box {
    explicit Held(T v) : Box(typeid(T)), value(std::move(v)) {}
    T value;
  };

  // Acquires what the former owners did with the value.
  bool only_owner() const { return box_->owners.load(std::memory_order_acquire) == 1; }

  Box* box_ = nullptr;
};

}  // namespace lanewise
