// A Packet is what travels on an edge: a value of any type, or the end of the stream.
//
// A packet is moved from node to node and copied only where an output feeds several edges; copies share the value,
// which nobody may change unless take() says that it is the only owner.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "graph/error.h"

namespace lanewise {

class Packet {
 public:
  Packet() = default;  // the end of a stream

  template <class T>
  static Packet of(T value) {
    Packet p;
    p.type_ = &typeid(T);
    p.value_ = std::make_shared<T>(std::move(value));
    return p;
  }

  bool is_end() const { return value_ == nullptr; }

  template <class T>
  bool holds() const {
    return type_ != nullptr && *type_ == typeid(T);
  }

  // The value. Requires: it holds a T (else an internal Error, since ports are checked when the plan is made).
  template <class T>
  const T& get() const {
    if (!holds<T>()) throw Error(Exit::kInternal, "a packet does not hold what its port promises");
    return *static_cast<const T*>(value_.get());
  }

  // Takes the value out: moved when this packet is its only owner, else copied. The packet then is empty.
  template <class T>
  T take() {
    get<T>();
    const std::shared_ptr<void> value = std::exchange(value_, nullptr);
    T& held = *static_cast<T*>(value.get());
    return value.use_count() == 1 ? std::move(held) : held;
  }

 private:
  const std::type_info* type_ = nullptr;
  std::shared_ptr<void> value_;
};

}  // namespace lanewise
