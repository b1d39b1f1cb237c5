// A Source gives the samples of one stream, one a firing. Its base fills the tags and knows what the end of a pass over
// the stream means (SourceRules): first and error, the stream ends; restart, it begins again with the next run; mask,
// fillers follow.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "graph/fields.h"
#include "graph/node.h"
#include "graph/plan.h"
#include "graph/registry.h"
#include "runtime/random.h"
#include "runtime/services.h"
#include "runtime/tensor_ring.h"
#include "runtime/values.h"

namespace lanewise {

// What every source takes.
struct SourceParams {
  double weight = 1;
  std::optional<std::string> on_end;
  std::optional<double> max_gap;

  void fields(Fields& f) {
    f.add("weight", &weight, "weight of this stream's rows in the loss").between(0, 1);
    f.add("on_end", &on_end, "what the end of this stream means; without it, what run.on_end says").one_of(end_rules());
    f.add("max_gap", &max_gap, "after a longer gap in time a sample begins a new sequence").unit("s").at_least(0);
  }
};

// What every source takes that computes its samples: such a stream has as many as one asks for.
struct GeneratorParams : SourceParams {
  std::optional<std::int64_t> samples;

  void fields(Fields& f) {
    f.add("samples", &samples, "samples of one pass over the stream; without it the stream is endless").at_least(1);
    SourceParams::fields(f);
  }
  // The part of a generator's signature that follows from these.
  void describe(Signature& signature) const {
    signature.length = samples;
    signature.endless = !samples;
  }
};

class Source : public Node {
 public:
  Source(const SourceParams& params, const NodeContext& context) : Source(context, params, std::nullopt) {}
  Source(const GeneratorParams& params, const NodeContext& context) : Source(context, params, params.samples) {}

  void fire(Firing& firing) override;
  bool skip(std::uint64_t packets) final;
  nlohmann::json state() const final;
  void restore(const nlohmann::json& state) final;

 protected:
  enum class Given { kSample, kEnd, kLater };
  // Makes the next sample of this pass: x, y, and of the tag the time, whether a sequence starts here within the pass,
  // and a weight that is lower where the row counts less, or must not. kEnd: the pass is at its end. kLater: there is
  // nothing yet, and this firing gives nothing.
  virtual Given next(Sample& sample) = 0;
  // Back to the first sample, for the next run.
  virtual void rewind() = 0;
  // What next() goes by.
  virtual nlohmann::json save() const = 0;
  virtual void load(const nlohmann::json& saved) = 0;
  // In an evaluation, after next(): the last valid target that was known when the sample's target had to be forecast.
  // Here that of the sample before; undefined when there is none.
  virtual at::Tensor known() const { return last_; }

  // A sample's x and y from their elements, in the run's dtype.
  at::Tensor make_x(std::span<const double> values, at::IntArrayRef shape) { return make(xs_, values, shape); }
  at::Tensor make_y(std::span<const double> values, at::IntArrayRef shape) { return make(ys_, values, shape); }
  // The next run begins before the end of this one, with the next sample.
  void begin_run();
  // The run that next() is in, the samples given of it, and whether nothing but fillers follows.
  std::uint64_t run() const { return run_; }
  std::uint64_t given() const { return static_cast<std::uint64_t>(given_); }
  bool over() const { return over_; }
  at::ScalarType dtype() const { return rules_.dtype; }
  const SourceRules& rules() const { return rules_; }
  // The seq of the sample that next() is making: counts over the whole training.
  std::uint64_t seq() const { return seq_; }
  // This node's random numbers of sample seq().
  Random random() const { return random_.at(seq_); }
  const Random& random_stream() const { return random_; }
  const std::string& id() const { return id_; }

 private:
  Source(const NodeContext& context, const SourceParams& params, std::optional<std::int64_t> samples);
  Given advance(Sample& sample);
  Given make(Sample& sample);
  at::Tensor make(TensorRing& ring, std::span<const double> values, at::IntArrayRef shape) const;

  const std::string id_;
  const SourceRules rules_;
  const Random random_;
  const std::string end_rule_;
  const int stream_;
  const double weight_;
  const std::optional<double> max_gap_;  // s
  const std::optional<std::int64_t> samples_;

  std::uint64_t run_ = 0, seq_ = 0;
  std::int64_t given_ = 0;            // samples of this pass
  bool over_ = false;                 // only fillers follow
  std::optional<std::int64_t> time_;  // of the last sample of this pass
  std::uint64_t skip_ = 0;            // samples to make and drop
  TensorRing xs_, ys_;
  at::Tensor like_x_, like_y_;  // shaped like the stream's samples: what a filler must look like
  at::Tensor last_;             // y of the last sample with a valid one in this run, when evaluating
};

}  // namespace lanewise
