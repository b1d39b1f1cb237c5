// A Node is one instance of a node type: what the user swaps. Its stage fires it, one firing at a time, whenever every
// input holds a packet and every output has room. A node knows neither edges nor threads nor oneTBB.
//
// Rules for a node: fire() never waits unless its type says `may_wait`; the values of its inputs may be shared and are
// not changed; what it holds between two firings is what state() returns and restore() puts back.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/packet.h"

namespace lanewise {

// One firing: the inputs, and what the node decides to do with its outputs.
class Firing {
 public:
  Firing(std::uint64_t index, std::span<Packet> inputs, std::span<std::optional<Packet>> outputs)
      : index_(index), inputs_(inputs), outputs_(outputs) {}

  std::uint64_t index() const { return index_; }  // firings of this node before this one
  std::span<Packet> inputs() { return inputs_; }  // one packet an input edge, in port order
  Packet& input(std::size_t i) { return inputs_[i]; }

  // Puts one packet on every edge of an output port, at most once a port and firing. Outputs nobody reads are dropped.
  void emit(std::size_t port, Packet packet) { outputs_[port] = std::move(packet); }
  // Ends every output: nothing follows, and the node is not fired again.
  void end() { ended_ = true; }
  // Counts inputs that leave no trace downstream (a window that fills, a filler that is dropped).
  void absorb(std::uint64_t packets = 1) { absorbed_ += packets; }
  // The flow rests after this firing: what was emitted is held back, the graph runs idle, and Flow::run() returns
  // kPaused. The next run() goes on with the held packets.
  void pause() { pause_ = true; }
  // The work is complete: this node is not fired again and puts no end, the flow ends when it is idle, and what is left
  // on edges is not a stall.
  void finish() { finish_ = true; }

  bool ended() const { return ended_; }
  bool paused() const { return pause_; }
  bool finished() const { return finish_; }
  std::uint64_t absorbed() const { return absorbed_; }

 private:
  const std::uint64_t index_;
  std::span<Packet> inputs_;
  std::span<std::optional<Packet>> outputs_;
  std::uint64_t absorbed_ = 0;
  bool ended_ = false, pause_ = false, finish_ = false;
};

// How what comes from outside of a flow gets the node that waits for it fired (types that are `fed`).
class Feed {
 public:
  virtual ~Feed() = default;
  // Something has come: the node is fired once more than it would have been. From any thread.
  virtual void came() noexcept = 0;
};

class Node {
 public:
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;

  // One firing. An exception ends the flow; the stage adds the node's id and the firing to its message.
  virtual void fire(Firing& firing) = 0;

  // The packet that a feedback edge of output `port` starts with. Only nodes that may close a cycle have one.
  virtual Packet initial(std::size_t port);

  // What the node holds between two firings, complete enough that a new node with restore(state()) goes on alike.
  virtual nlohmann::json state() const;
  virtual void restore(const nlohmann::json& state);

  // Drops the next `packets` that it would emit, and counts them as absorbed: they were used before restore(). False:
  // it cannot, and a run with this node is not resumed exactly.
  virtual bool skip(std::uint64_t packets) { return packets == 0; }

  // Samples it has taken and will still emit or absorb, for the accounts. Asked while the flow rests.
  virtual std::uint64_t held() const { return 0; }

  // Of types that are `fed`, once the node is in a flow: each firing needs a came() besides its inputs and room. Null:
  // the flow is over, and the feed is gone when this returns. A node that was never connected is fired at any time, and
  // waits in its body.
  virtual void connect(Feed* feed);

  // Wakes a body that waits (types with `may_wait`), which then throws or ends. May be called from any thread, also
  // just before the body begins to wait: it is to be remembered.
  virtual void interrupt() noexcept {}
};

}  // namespace lanewise
