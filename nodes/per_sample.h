// A PerSample node turns each sample of one stream into one sample, or takes it in without giving one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "graph/node.h"
#include "runtime/values.h"

namespace lanewise {

class PerSample : public Node {
 public:
  // The end of the stream passes through. Samples are renumbered: seq counts what leaves.
  void fire(Firing& firing) final;
  nlohmann::json state() const final;
  void restore(const nlohmann::json& state) final;

 protected:
  // The sample to send on, or nothing. The tensors of `sample` may be shared and are not to be written to.
  virtual std::optional<Sample> apply(Sample sample) = 0;
  // What apply() goes by, besides parameters.
  virtual nlohmann::json save() const { return nullptr; }
  virtual void load(const nlohmann::json&) {}

 private:
  std::uint64_t seq_ = 0;
};

}  // namespace lanewise
