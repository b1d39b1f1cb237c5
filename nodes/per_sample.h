// A PerSample node turns each sample of one stream into one sample, or takes it in without giving one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "graph/node.h"
#include "graph/plan.h"
#include "runtime/values.h"

namespace lanewise {

class PerSample : public Node {
 public:
  explicit PerSample(const NodeContext& context) : id_(context.node.id) {}

  // The end of the stream passes through. Samples are renumbered: seq counts what leaves.
  void fire(Firing& firing) final;
  bool skip(std::uint64_t packets) final;
  nlohmann::json state() const final;
  void restore(const nlohmann::json& state) final;

 protected:
  // The sample to send on, or nothing. The tensors of `sample` may be shared and are not to be written to.
  virtual std::optional<Sample> apply(Sample sample) = 0;
  // What apply() goes by, besides parameters.
  virtual nlohmann::json save() const { return nullptr; }
  virtual void load(const nlohmann::json&) {}

 private:
  [[noreturn]] void give_nothing() const;

  const std::string id_;
  std::uint64_t seq_ = 0;
  std::uint64_t run_ = 0, taken_ = 0;          // the run that samples come from, and how many of it have come
  bool given_ = false;                         // one of them has led to a sample
  std::uint64_t skip_ = 0;                     // samples to make and drop
  std::shared_ptr<const ChainRecord> record_;  // came with a sample that was taken in; goes on with the next
};

}  // namespace lanewise
